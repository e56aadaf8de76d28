"""Decodes fragments piece by piece, and applies them to the bytes of a tensor.

It must stay true that memory is bounded whatever a frame says, and that no fragment which is
accepted changes a byte outside its tensor.
"""

from typing import IO, Protocol, cast

import numpy as np
import numpy.typing as npt
import zstandard

from rlfleet_sidecar.deltas.formats.delta import BadDeltaError, Encoding, Fragment

Bytes = npt.NDArray[np.uint8]

FRAME_PREFIX = 18
"""The longest header of a zstd frame."""
MAX_WINDOW = 8 * 1024 * 1024
"""What every decoder must support, by the format's specification (RFC 8878)."""
_COUNT, _PLACE, _VALUE = 4, 4, 1
"""Bytes of the fields of an overwrite: how many, where each, its new value."""
_ADDRESSABLE = 1 << 8 * _PLACE
_READ = 128 * 1024
_STATE = 512 * 1024
"""What a decoder needs besides its window, and what a patch needs besides its decoders."""
_PLACES = 64 * 1024
"""How many places of an overwrite are decoded at a time."""


class Input(Protocol):
    """The compressed bytes of one fragment."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes; none at the end."""


class Patch(Protocol):
    """A fragment that is applied to one piece of its tensor after the other."""

    def apply(self, piece: Bytes, begin: int) -> None:
        """Change a piece, which begins at this byte of the tensor."""

    def finish(self) -> None:
        """Raise if something is left after the last piece."""


def demand_frame(prefix: bytes, fragment: Fragment, nbytes: int) -> int:
    """Return the window of a frame of this header.

    Raises unless it can be decoded, and fits a tensor of ``nbytes``.
    """
    try:
        frame = zstandard.get_frame_parameters(prefix)
    except zstandard.ZstdError as error:
        raise _bad(fragment, f"is not a zstd frame ({error})") from error
    if frame.dict_id:
        raise _bad(fragment, f"needs dictionary {frame.dict_id}, expected none")
    if frame.window_size > MAX_WINDOW:
        raise _bad(fragment, f"has a window of {frame.window_size}, expected at most {MAX_WINDOW}")
    if frame.content_size == zstandard.CONTENTSIZE_UNKNOWN:
        raise _bad(fragment, "does not say how long it is decoded")
    _demand_size(fragment, frame.content_size, nbytes)
    return int(frame.window_size)


def memory_of(fragment: Fragment, window: int) -> int:
    """Return the most that a patch with this window holds, without its input."""
    decoders = 1 if fragment.encoding is Encoding.XOR else 2
    return _STATE + decoders * (window + _STATE)


def _demand_size(fragment: Fragment, size: int, nbytes: int) -> None:
    if fragment.encoding is Encoding.XOR:
        if size != nbytes:
            raise _bad(fragment, f"has {size} bytes decoded, expected {nbytes} by the base model")
        return
    if nbytes > _ADDRESSABLE:
        raise _bad(fragment, f"overwrites a tensor of {nbytes} bytes, expected at most 4 GiB")
    count, rest = divmod(size - _COUNT, _PLACE + _VALUE)
    if rest or not 0 <= count <= nbytes:
        most = _COUNT + nbytes * (_PLACE + _VALUE)
        raise _bad(fragment, f"has {size} bytes decoded, expected 4 + 5 a change, at most {most}")


def patch_of(fragment: Fragment, first: Input, second: Input, nbytes: int) -> Patch:
    """Begin to decode a fragment; an overwrite is read at two places at once."""
    if fragment.encoding is Encoding.XOR:
        return _Xor(_Decoder(fragment, first))
    return _Overwrite(fragment, _Decoder(fragment, first), _Decoder(fragment, second), nbytes)


class _Decoder:
    """The decoded bytes of one frame."""

    def __init__(self, fragment: Fragment, packed: Input) -> None:
        self._fragment = fragment
        unpacker = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
        # Across frames, so that whatever follows the first one is seen and rejected.
        self._reader = unpacker.stream_reader(
            cast("IO[bytes]", packed), read_size=_READ, read_across_frames=True
        )

    def fill(self, target: Bytes) -> None:
        """Decode exactly so many bytes."""
        rest = target.data
        while rest:
            count = self._read(rest)
            if count == 0:
                raise _bad(self._fragment, f"ends {len(rest)} bytes early")
            rest = rest[count:]

    def skip(self, nbytes: int) -> None:
        """Leave out so many bytes."""
        scratch = np.empty(min(nbytes, _READ), np.uint8)
        while nbytes > 0:
            self.fill(scratch[: min(nbytes, _READ)])
            nbytes -= min(nbytes, _READ)

    def demand_end(self) -> None:
        """Raise if bytes are left."""
        if self._read(memoryview(bytearray(1))):
            raise _bad(self._fragment, "has bytes after its end")

    def _read(self, target: memoryview) -> int:
        try:
            return self._reader.readinto(target)
        except zstandard.ZstdError as error:
            raise _bad(self._fragment, f"cannot be decoded ({error})") from error


class _Xor:
    def __init__(self, decoder: _Decoder) -> None:
        self._decoder = decoder
        self._scratch = np.empty(_READ, np.uint8)

    def apply(self, piece: Bytes, begin: int) -> None:  # noqa: ARG002 - pieces come in order
        for at in range(0, len(piece), _READ):
            part = piece[at : at + _READ]
            change = self._scratch[: len(part)]
            self._decoder.fill(change)
            np.bitwise_xor(part, change, out=part)

    def finish(self) -> None:
        self._decoder.demand_end()


class _Overwrite:
    def __init__(self, fragment: Fragment, places: _Decoder, values: _Decoder, nbytes: int) -> None:
        self._fragment = fragment
        self._places = places
        self._values = values
        self._nbytes = nbytes
        count = np.empty(_COUNT, np.uint8)
        places.fill(count)
        self._left = int(count.view("<u4")[0])
        if self._left > nbytes:
            raise _bad(fragment, f"changes {self._left} bytes, expected at most {nbytes}")
        values.skip(_COUNT + _PLACE * self._left)
        self._ahead = np.empty(0, "<u4")
        """Decoded places that no piece has reached yet."""
        self._last = -1

    def apply(self, piece: Bytes, begin: int) -> None:
        end = begin + len(piece)
        while True:
            if not len(self._ahead) and not self._decode():
                return
            due = int(np.searchsorted(self._ahead, end))
            values = np.empty(due, np.uint8)
            self._values.fill(values)
            piece[self._ahead[:due] - begin] = values
            self._ahead = self._ahead[due:]
            if len(self._ahead):
                return

    def finish(self) -> None:
        if self._left or len(self._ahead):
            raise _bad(self._fragment, f"changes a byte from {self._nbytes} on, which has none")
        self._values.demand_end()

    def _decode(self) -> bool:
        """Decode the next places, which must ascend; returns whether there were any."""
        count = min(self._left, _PLACES)
        places = np.empty(count, "<u4")
        self._places.fill(places.view(np.uint8))
        if count == 0:
            return False
        first, last = int(places[0]), int(places[-1])
        if first <= self._last or not bool((places[1:] > places[:-1]).all()):
            raise _bad(self._fragment, "lists places that do not ascend")
        if last >= self._nbytes:
            raise _bad(self._fragment, f"changes byte {last}, expected less than {self._nbytes}")
        self._last, self._left, self._ahead = last, self._left - count, places
        return True


def _bad(fragment: Fragment, what: str) -> BadDeltaError:
    return BadDeltaError(f"fragment of tensor {fragment.tensor} {what}; publish it again")
