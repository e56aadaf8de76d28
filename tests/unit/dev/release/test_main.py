"""`make release-check` compares every byte of two releases."""

from pathlib import Path

import pytest

from dev.release import __main__ as release
from dev.steps import StepFailed


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
