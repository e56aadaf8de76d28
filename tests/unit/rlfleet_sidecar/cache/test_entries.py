"""An entry is found whole or not at all, wherever the sidecar was killed."""

import shutil
from pathlib import Path

import pytest
from pydantic import BaseModel

from rlfleet_sidecar.cache.entries import Entries


class Note(BaseModel):
    """A record."""

    directory: Path
    text: str


def opened(root: Path) -> Entries[Note]:
    return Entries(root, Note, lasting=True)


def trusted(entry: Path, note: Note) -> bool:
    return note.directory == entry and (entry / "data").exists()


def admitted(entries: Entries[Note], name: str, text: str) -> None:
    with entries.draft(0) as draft:
        (draft / "data").write_text(text)
        entries.admit(draft, name, Note(directory=entries.root / name, text=text))


def found(root: Path) -> list[str]:
    return [note.text for note in opened(root).swept(trusted)]


def test_what_was_admitted_is_found_again_and_takes_the_place_of_what_had_its_name(
    tmp_path: Path,
) -> None:
    entries = opened(tmp_path)
    admitted(entries, "a", "first")
    admitted(entries, "a", "second")
    admitted(entries, "b", "other")
    entries.drop("b")

    assert found(tmp_path) == ["second"]
    assert (tmp_path / "a" / "data").read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_directory_that_a_person_deleted_is_made_again(tmp_path: Path) -> None:
    entries = opened(tmp_path / "versions")
    admitted(entries, "a", "first")
    shutil.rmtree(tmp_path / "versions")

    admitted(entries, "b", "second")

    assert found(tmp_path / "versions") == ["second"]


def test_a_draft_that_fails_goes_at_once(tmp_path: Path) -> None:
    def fail(draft: Path) -> None:
        (draft / "data").write_text("half")
        raise LookupError

    with pytest.raises(LookupError), opened(tmp_path).draft(0) as draft:
        fail(draft)

    assert not [*tmp_path.iterdir()]


def test_whatever_cannot_be_trusted_is_swept_out_and_a_link_only_itself(tmp_path: Path) -> None:
    root, behind = tmp_path / "root", tmp_path / "behind"
    behind.mkdir()
    (behind / "data").touch()
    entries = opened(root)
    admitted(entries, "good", "good")
    # Cut off before its name, after its name was taken, and in the midst of going.
    (root / "good").rename(root / ".draft-1")
    admitted(entries, "good", "good")
    (root / "half").mkdir()
    (root / "half" / "data").touch()
    admitted(entries, "gone", "gone")
    (root / "gone").rename(root / ".old-1")
    admitted(entries, "bare", "bare")
    (root / "bare" / "data").unlink()
    (root / "stray").touch()
    (root / "link").symlink_to(behind)

    assert found(root) == ["good"]
    assert [path.name for path in root.iterdir()] == ["good"]
    assert (behind / "data").exists()


def test_the_last_used_comes_last_and_what_never_was_comes_first(tmp_path: Path) -> None:
    entries = opened(tmp_path)
    for name in "abc":
        admitted(entries, name, name)
    entries.touch("a")
    used = entries.used_at("a")
    while entries.used_at("b") in {None, used}:
        entries.touch("b")
    entries.touch("unknown")

    assert (entries.used_at("c"), entries.used_at("unknown")) == (None, None)
    assert found(tmp_path) == ["c", "a", "b"]
