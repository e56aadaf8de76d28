"""Downloads a release's wheel and reads its files; nothing of it is installed or executed."""

import sys
import tempfile
import zipfile
from pathlib import Path

from dev import cache
from dev.images import names
from dev.releases.release_files import ReleaseFiles


def uses_of(release: str) -> dict[str, str]:
    """Return for each name that rlfleet uses whether a release has it, and its parameters."""
    return ReleaseFiles(_files(release)).uses()


def _files(release: str) -> Path:
    """Return the release's Python files, kept without all else that the wheel has."""
    kept = cache.root() / "wheels" / release
    if kept.exists():
        return kept
    with tempfile.TemporaryDirectory(dir=cache.folder("wheels")) as scratch:
        flags = ["--no-deps", "--only-binary=:all:", f"--dest={scratch}"]
        wanted = f"{names.package_of(release)}=={release}"
        words = [sys.executable, "-m", "pip", "download", *flags, wanted]
        cache.call(words, "wheel-download")
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            sources = [name for name in archive.namelist() if name.endswith(".py")]
            archive.extractall(Path(scratch, "files"), sources)
        Path(scratch, "files").rename(kept)
    return kept
