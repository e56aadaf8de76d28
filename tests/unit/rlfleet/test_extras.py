"""What is missing without an extra of the wheel is named, with the command that installs it."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "missing", "extra"),
    [
        ("rlfleet.fleet", "httpx", "fleet"),
        ("rlfleet.fleet.spec_client", "httpx", "fleet"),
        ("rlfleet.publish", "numpy", "publish"),
        ("rlfleet.publish", "blake3", "publish"),
        ("rlfleet_kubectl.__main__", "click", "plugin"),
    ],
)
def test_an_import_without_its_extra_names_the_extra(module: str, missing: str, extra: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import {module}"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )

    said = f"{missing} is not installed; run pip install 'rlfleet[{extra}]'"
    assert ended.returncode == 1
    assert ended.stderr.rstrip().endswith(said)
