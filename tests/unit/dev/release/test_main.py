"""A release is of a commit alone, and `make release-check` compares every byte of two."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from dev import cache
from dev.release import __main__ as release
from dev.steps import StepFailed

LISTING = """\
import json, os, sys
from pathlib import Path

seen = {str(path): oct(path.stat().st_mode) for path in Path().rglob("*") if path.is_file()}
seen = {path: mode for path, mode in seen.items() if not path.startswith((".git/", "dev/"))}
Path(sys.argv[1], "seen").write_text(json.dumps([sys.argv[2:], os.environ.get("TZ"), seen]))
sys.exit(int(sys.argv[3]))
"""
"""What stands here for dev.release.tree: it lists the tree that it runs in."""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone of a user whose files are private, with files that are in no commit."""
    root = tmp_path / "clone"
    (root / "dev" / "release").mkdir(parents=True)
    (root / "dev" / "release" / "tree.py").write_text(LISTING)
    (root / ".gitignore").write_text("*.log\n")
    (root / "a.py").write_text("1")
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for words in (("init", "-q"), ("add", "-A"), (*who, "commit", "-q", "-m", "1")):
        subprocess.run(["git", *words], cwd=root, check=True)
    for name in ("ignored.log", "fresh.py"):
        (root / name).write_text("2")
    monkeypatch.setattr(cache, "REPOSITORY", root)
    return root


def test_a_release_holds_what_is_committed_with_modes_of_its_own(
    repository: Path, tmp_path: Path
) -> None:
    (repository / "a.py").write_text("changed")
    folder = tmp_path / "made"
    before = os.umask(0o077)
    try:
        release.make(folder, ["HEAD", "0"], {"TZ": "Asia/Tokyo"})
    finally:
        os.umask(before)

    words, zone, seen = json.loads((folder / "seen").read_text())
    assert (words, zone) == (["HEAD", "0"], "Asia/Tokyo")
    assert seen == {".gitignore": "0o100644", "a.py": "0o100644"}


@pytest.mark.usefixtures("repository")
def test_a_release_that_fails_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="failed with 3"):
        release.make(tmp_path / "made", ["HEAD", "3"])


def two(at: Path, one: dict[str, bytes], other: dict[str, bytes]) -> tuple[Path, Path]:
    for name, files in (("one", one), ("other", other)):
        (at / name).mkdir()
        for file, content in files.items():
            (at / name / file).write_bytes(content)
    return at / "one", at / "other"


def test_the_same_files_pass(tmp_path: Path) -> None:
    release.compare(*two(tmp_path, {"a": b"1", "b": b"2"}, {"b": b"2", "a": b"1"}))


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"a": b"1", "b": b"3"}, "differ in b;"),
        ({"a": b"1"}, "differ in b;"),
        ({"a": b"1", "b": b"2", "c": b""}, "differ in c;"),
    ],
)
def test_what_differs_is_named(tmp_path: Path, other: dict[str, bytes], named: str) -> None:
    with pytest.raises(StepFailed, match=named):
        release.compare(*two(tmp_path, {"a": b"1", "b": b"2"}, other))
