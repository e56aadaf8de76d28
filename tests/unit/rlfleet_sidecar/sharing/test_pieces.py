"""How a version is divided, and what separates its states."""

from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_sidecar.sharing.pieces import Piece, edition_of, pieces_of

FILES = (
    FileStamp(name="a", size=25, mtime_ns=1, inode=1),
    FileStamp(name="b", size=0, mtime_ns=1, inode=2),
    FileStamp(name="c", size=10, mtime_ns=1, inode=3),
)


def test_pieces_cover_each_byte_once_and_never_two_files() -> None:
    assert pieces_of(FILES, 10) == (
        Piece("a", 0, 10),
        Piece("a", 10, 20),
        Piece("a", 20, 25),
        Piece("c", 0, 10),
    )


def test_an_edition_is_of_one_state_of_the_files_on_any_mount() -> None:
    known = edition_of(FILES)
    remounted = tuple(stamp.model_copy(update={"device": 7}) for stamp in FILES)

    assert edition_of(remounted) == known
    for field in ("size", "mtime_ns", "inode"):
        changed = FILES[0].model_copy(update={field: 99})
        assert edition_of((changed, *FILES[1:])) != known
