"""A delta whose payload files are open: what it changes is checked, then decoded.

It must stay true that every fragment of a chain is checked before one of them is applied.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO

from rlfleet_contract.engine.safetensors import BadHeaderError, FileStamp, Tensor
from rlfleet_sidecar.checkpoints.check import demand_same
from rlfleet_sidecar.checkpoints.folder import Folder, Location, Reading
from rlfleet_sidecar.deltas.far_file import FarFile
from rlfleet_sidecar.deltas.formats import fields
from rlfleet_sidecar.deltas.formats.delta import (
    BadDeltaError,
    Delta,
    Encoding,
    Fragment,
    TornDeltaError,
)
from rlfleet_sidecar.deltas.payload import (
    FRAME_PREFIX,
    MAX_WINDOW,
    Input,
    Patch,
    demand_frame,
    memory_of,
    patch_of,
)
from rlfleet_sidecar.deltas.published import defects_named
from rlfleet_sidecar.state.required_tensors import HEAD

_HELD = 1024 * 1024
"""Up to this size an overwrite is read once, larger ones at two places at once."""


@dataclass(frozen=True, slots=True)
class OpenDelta:
    """A delta with its opened payload files."""

    path: Location
    delta: Delta
    files: Mapping[str, Reading]
    _windows: dict[str, int] = field(default_factory=dict)
    """Bytes of the decoders' windows, by tensor; known once the fragments were checked."""
    _ahead: dict[str, FarFile] = field(default_factory=dict)
    """The files that were read ahead for the check."""

    def part(self, fragment: Fragment, begin: int, nbytes: int) -> bytes:
        """Read bytes of a fragment."""
        file = self._ahead.get(fragment.file) or self.files[fragment.file]
        try:
            return file.read(nbytes, fragment.begin + begin)
        except BadHeaderError as error:
            raise TornDeltaError(f"{error}; wait until it is complete") from error

    def demand_applicable(
        self, tensors: Mapping[str, Tensor], demand_wanted: Callable[[], None] = lambda: None
    ) -> tuple[str, ...]:
        """Raise unless all fragments fit the tensors; returns those that are left out."""
        unknown = tuple(sorted(self.delta.fragments.keys() - tensors.keys()))
        self._read_beginnings()
        for fragment in self.delta.fragments.values():
            demand_wanted()
            tensor = tensors.get(fragment.tensor)
            with defects_named(self.path / fragment.file):
                if tensor is not None:
                    _demand_alike(fragment, tensor)
                    prefix = self.part(fragment, 0, min(FRAME_PREFIX, fragment.nbytes))
                    window = demand_frame(prefix, fragment, tensor.nbytes)
                    self._windows[fragment.tensor] = window
                elif not (self.delta.skips_unknown and _is_tied_head(fragment.tensor, tensors)):
                    raise BadDeltaError(
                        f"changes tensor {fragment.tensor}, which the base model lacks; publish"
                        " only tensors of the base model"
                    )
        for file in self._ahead.values():
            file.forget()
        return unknown

    def _read_beginnings(self) -> None:
        """Read the frames' headers ahead, where each read is a request."""
        for name, file in self.files.items():
            if not file.request_bytes:
                continue
            own = [one for one in self.delta.fragments.values() if one.file == name]
            self._ahead[name] = FarFile(file)
            with defects_named(self.path / name):
                try:
                    self._ahead[name].fetch(
                        [(one.begin, one.begin + min(FRAME_PREFIX, one.nbytes)) for one in own]
                    )
                except BadHeaderError as error:
                    raise TornDeltaError(f"{error}; wait until it is complete") from error

    def memory(self, fragment: Fragment) -> int:
        """Return the bytes that a fragment takes while it is decoded."""
        inputs = 1 if fragment.encoding is Encoding.XOR else 2
        ahead = inputs * min(self.files[fragment.file].request_bytes, fragment.nbytes)
        held = fragment.nbytes if _is_held(fragment) else ahead
        return held + memory_of(fragment, self._windows.get(fragment.tensor, MAX_WINDOW))

    def begun(self, fragment: Fragment, nbytes: int) -> tuple[Location, Patch]:
        """Begin to decode a fragment; returns its file too, for errors."""
        path = self.path / fragment.file
        with defects_named(path):
            inputs: tuple[Input, Input] = (_Range(self, fragment), _Range(self, fragment))
            if _is_held(fragment):
                held = _Range(self, fragment)
                data = b"".join(iter(partial(held.read, _HELD), b""))
                inputs = (BytesIO(data), BytesIO(data))
            return path, patch_of(fragment, *inputs, nbytes)


@contextmanager
def opened(folder: Folder, delta: Delta, stamps: Sequence[FileStamp]) -> Iterator[OpenDelta]:
    """Open a delta's payload files, which must be the checked ones until the end."""
    named = {fragment.file for fragment in delta.fragments.values()}
    with ExitStack() as stack:
        files: dict[str, Reading] = {}
        for stamp in stamps:
            if stamp.name in named:
                files[stamp.name] = stack.enter_context(folder.open(stamp.name))
                demand_same(folder, stamp, files[stamp.name].stamp)
        yield OpenDelta(folder.path, delta, files)
        for file in files.values():
            demand_same(folder, file.stamp, file.now())


class _Range:
    """The bytes of one fragment in its file."""

    def __init__(self, opened_delta: OpenDelta, fragment: Fragment) -> None:
        self._delta = opened_delta
        self._fragment = fragment
        self._at = 0
        self._ahead = b""
        """What was read beyond the last bytes that were asked for."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes; none at the end."""
        if not self._ahead:
            most = max(size, self._delta.files[self._fragment.file].request_bytes)
            wanted = min(most, self._fragment.nbytes - self._at)
            self._ahead = self._delta.part(self._fragment, self._at, wanted)
            self._at += wanted
        found, self._ahead = self._ahead[:size], self._ahead[size:]
        return found


def _is_tied_head(name: str, tensors: Mapping[str, Tensor]) -> bool:
    """Return whether this is the head of a model that has none of its own."""
    return HEAD.search(name) is not None and not any(map(HEAD.search, tensors))


def _is_held(fragment: Fragment) -> bool:
    return fragment.encoding is Encoding.OVERWRITE and fragment.nbytes <= _HELD


def _demand_alike(fragment: Fragment, tensor: Tensor) -> None:
    """Raise if the format says another dtype or shape than the base model has."""
    if fragment.dtype is not None:
        fields.demand(tensor.name, "dtype", fragment.dtype, tensor.dtype)
    if fragment.shape is not None:
        fields.demand(tensor.name, "shape", list(fragment.shape), list(tensor.shape))
