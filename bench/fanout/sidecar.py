"""A real sidecar for the calibration: with small pieces, and with wrong bytes while a file exists.

A small version has too few pieces of 16 MiB to be forwarded like a large one.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_sidecar.__main__ import main
from rlfleet_sidecar.cache import store
from rlfleet_sidecar.sharing.offering import Offering
from rlfleet_sidecar.sharing.pieces import Piece, pieces_of

PIECE_BYTES = 1024 * 1024


def _small(files: Sequence[FileStamp]) -> tuple[Piece, ...]:
    return pieces_of(files, PIECE_BYTES)


def _run(lies: Path) -> int:
    opened = Offering.opened

    def sent(offering: Offering, number: int) -> Iterator[bytes]:
        chunks = opened(offering, number)
        return (bytes(len(chunk)) for chunk in chunks) if lies.exists() else chunks

    vars(store)["pieces_of"] = _small
    setattr(Offering, "opened", sent)  # noqa: B010 - types have no word for it
    return main(["--log-level", "INFO"])


if __name__ == "__main__":
    sys.exit(_run(Path(sys.argv[1])))
