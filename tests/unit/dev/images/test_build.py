"""What an image's root holds of the machine that built it."""

import subprocess
from pathlib import Path

from dev.images import build


def test_the_root_has_neither_name_nor_name_server_of_the_machine(tmp_path: Path) -> None:
    """mmdebstrap copies both files, and runs its hooks so."""
    (tmp_path / "etc").mkdir()
    for name in ("hostname", "resolv.conf", "passwd"):
        (tmp_path / "etc" / name).write_text("build-7")

    subprocess.run(["sh", "-c", build.FORGET_HOST, "hook", str(tmp_path)], check=True)

    assert [path.name for path in (tmp_path / "etc").iterdir()] == ["passwd"]
