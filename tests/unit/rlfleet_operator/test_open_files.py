"""The operator may hold connections to more workers than a shell's limit of open files."""

import subprocess
import sys

_PROGRAM = """
import resource
from rlfleet_operator.__main__ import open_all_files

_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, most))
open_all_files()
print(resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most))
"""


def test_the_soft_limit_of_open_files_becomes_the_hard_one() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip() == "True"
