"""Reads and digests a staged version in the background, so that its reload need not.

It must stay true that a reload gets exactly the bytes that were digested, from sealed
memory. A preload must cost a change nothing: the reload ends it, takes what it holds
and reads the rest. A rank has at most one.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from rlfleet_contract.engine.rank_report import Preloaded
from rlfleet_contract.engine.safetensors import BLAKE3, FileStamp, Tensor
from rlfleet_engine import json_logs
from rlfleet_engine.reload.checked_file import ChangedError, CheckedFile, unbind
from rlfleet_engine.reload.free_memory import FreeMemory, objection, read
from rlfleet_engine.reload.held import HeldFile, HeldTensor, held_bytes
from rlfleet_engine.reload.sealed_copy import (
    CopyLayout,
    SealedCopies,
    ShortFileError,
    StoppedError,
    chunks,
    laid_out,
)
from rlfleet_engine.reload.word_sum import word_sum
from rlfleet_engine.reload.zeroed import ZeroedMemory

_NICE = 10
"""A tenth of a busy core: less would take minutes there, and cost the engine as much in all."""
_LOOK_S = 5.0
_KEPT_S = 3600.0
"""How long the memory is kept without a reload."""
_log = json_logs.logger(__name__)


class NoRoomError(Exception):
    """There is too little memory for a preload."""


class Taken(NamedTuple):
    """What a reload gets from a preload."""

    files: dict[str, HeldFile]
    zeroed: ZeroedMemory
    """For parameters of the sizes that the preload was asked for."""


class Preload:
    """One version's tensors, read by a thread that gives way to all others."""

    def __init__(
        self,
        directory: str,
        files: Sequence[FileStamp],
        folder: Path,
        *,
        is_doubled: bool,
        rooms: Sequence[int] = (),
        look: Callable[[], FreeMemory | None] = read,
        look_s: float = _LOOK_S,
    ) -> None:
        """Begin.

        Args:
            directory: The version's staged copy.
            files: Its checked files.
            folder: Where the ranks of this engine find one another's copies.
            is_doubled: Whether the reload needs the model's size once more.
            rooms: The sizes of zeroed memory that the reload will need, part of that.
            look: Returns the free memory.
            look_s: How often the memory is looked at once all is read.

        """
        self._look, self._look_s = look, look_s
        self._directory = Path(directory)
        self._files = tuple(files)
        self._is_doubled, self._rooms = is_doubled, tuple(rooms)
        self._zeroed = ZeroedMemory()
        self._stop = threading.Event()
        self._free = threading.Event()
        self._held: dict[str, HeldFile] = {}
        self._total = 0
        self._is_reading = True
        self._why: str | None = None
        self.key = sha256(repr((directory, self._files)).encode()).hexdigest()[:32]
        """Names its copies in every rank."""
        self._copies = SealedCopies(folder, self.key, self._stop.wait)
        threading.Thread(target=self._run, name="rlfleet-preload", daemon=True).start()

    def is_of(self, directory: str, files: Sequence[FileStamp]) -> bool:
        """Return whether these are its files."""
        return (self._directory, self._files) == (Path(directory), tuple(files))

    @property
    def report(self) -> Preloaded:
        """How far it is."""
        return Preloaded(
            nbytes=held_bytes(self._held),
            total=self._total,
            zeroed=self._zeroed.nbytes,
            is_reading=self._is_reading,
            why=self._why,
        )

    def taken(self) -> Taken:
        """Return what it holds, and read no further."""
        self._stop.set()
        # Copies, because the thread may be about to add a tensor.
        files = {name: file.copy() for name, file in [*self._held.items()]}
        return Taken(files, self._zeroed)

    def end(self) -> None:
        """Give the memory back: here it would take clients' time, so the thread does it."""
        self._stop.set()
        self._free.set()

    def _run(self) -> None:
        _give_way()
        begun = time.monotonic()
        try:
            self._read()
            self._demand_room(0)
            self._zeroed.make(self._rooms, self._demand_wanted)
            _log.info("Version preloaded", extra=self._fields(begun))
        except StoppedError:
            _log.info("Preload cut short", extra=self._fields(begun))
        except (OSError, ValueError, ChangedError, ShortFileError, NoRoomError) as error:
            # A reload reads the files itself, and reports what is wrong with them.
            self._why = f"{type(error).__name__}: {error}"
            _log.warning("Preload failed", extra=self._fields(begun) | {"error": self._why})
        finally:
            self._is_reading = False
            self._keep()
            self._held.clear()
            self._zeroed.clear()
            self._copies.close()

    def _read(self) -> None:
        with ExitStack() as opened:
            files = [CheckedFile(self._directory, stamp) for stamp in self._files]
            for file in files:
                opened.callback(file.close)
            layouts = [laid_out(file.tensors) for file in files]
            self._total = sum(tensor.nbytes for file in files for tensor in file.tensors)
            left = sum(layout.nbytes for layout in layouts)
            for place, (file, layout) in enumerate(zip(files, layouts, strict=True)):
                room = partial(self._demand_room, left)
                data = self._copies.mapped(place, layout, file.descriptor, room)
                file.demand_same()
                self._digest(self._files[place].name, file.tensors, layout, data)
                left -= layout.nbytes

    def _digest(
        self, name: str, tensors: tuple[Tensor, ...], layout: CopyLayout, data: memoryview
    ) -> None:
        file = self._held[name] = HeldFile(tensors)
        for tensor, offset in layout.spots:
            part, hashed = data[offset : offset + tensor.nbytes], BLAKE3.new()
            for begin, end in chunks(tensor.nbytes):
                self._demand_wanted()
                hashed.update(part[begin:end])
            summed = word_sum(part, self._demand_wanted)
            file.held[tensor.name] = HeldTensor(part, hashed.digest(), summed)

    def _demand_wanted(self) -> None:
        if self._stop.is_set():
            raise StoppedError

    def _demand_room(self, nbytes: int) -> None:
        why = self._objection(nbytes)
        if why is not None:
            raise NoRoomError(why)

    def _objection(self, nbytes: int) -> str | None:
        memory = self._look()
        if memory is None:
            return "free memory unknown"
        further = max(0, self._total - self._zeroed.nbytes) if self._is_doubled else 0
        return objection(nbytes, further, memory)

    def _keep(self) -> None:
        """Wait until the memory is to be freed, because of a reload, its age or a shortage."""
        until = time.monotonic() + _KEPT_S
        while self._why is None and not self._stop.wait(self._look_s):
            why = "no reload came" if time.monotonic() > until else self._objection(0)
            if why is not None:
                self._why = why
                _log.info("Preload given up", extra={"error": why})
        if self._why is None:
            self._free.wait()

    def _fields(self, begun: float) -> dict[str, object]:
        return {
            "directory": str(self._directory),
            "bytes": held_bytes(self._held),
            "seconds": round(time.monotonic() - begun, 3),
        }


def begun(
    known: Preload | None,
    directory: str,
    files: Sequence[FileStamp],
    folder: Path,
    *,
    is_doubled: bool,
    rooms: Sequence[int] = (),
) -> Preload:
    """Return the preload of these files: the known one, unless it failed or is another's."""
    if known is not None:
        if known.is_of(directory, files) and known.report.why is None:
            return known
        known.end()
    return Preload(directory, files, folder, is_doubled=is_doubled, rooms=rooms)


@contextmanager
def ended(known: Preload | None, directory: str, files: Sequence[FileStamp]) -> Iterator[Taken]:
    """Yield what a preload holds of these files to the load inside, and end it after that."""
    if known is None or not known.is_of(directory, files):
        if known is not None:
            known.end()
        yield Taken({}, ZeroedMemory())
        return
    taken = known.taken()
    try:
        yield taken
    finally:
        # First here, so that the thread lets go last and returns the memory to the kernel.
        taken.files.clear()
        known.end()


def _give_way() -> None:
    """Have the calling thread run where and when nothing else does."""
    unbind()
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
