"""Gives the bytes of a version to their streams, in several threads, as they come.

A thread reads a step of a file into its own small buffer, which the processor's cache holds,
and from there it is digested and looked at: memory does not grow with a version or a tensor.
"""

import threading
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack

from rlfleet_sidecar.checkpoints.folder import Location, Reading
from rlfleet_sidecar.checkpoints.headers import damage_named
from rlfleet_sidecar.staging.coverage import Coverage
from rlfleet_sidecar.staging.folder_source import abandon
from rlfleet_sidecar.staging.prepare_job import PrepareJob
from rlfleet_sidecar.staging.streams import Stream

_STEP = 1024 * 1024
_BATCH = 4 * _STEP
"""So much is read between two looks whether it is still wanted."""
_LAG = 512 * 1024 * 1024
"""So many bytes may be there and not yet digested: what the page cache certainly still holds."""


class EndedError(Exception):
    """The pass is over, for a reason that its owner knows."""


class _File:
    def __init__(self, name: str, size: int, where: Location, streams: Sequence[Stream]) -> None:
        self.name = name
        self.size = size
        self.where = where
        self.coverage = Coverage()
        self.opened = ExitStack()
        self.reading: Reading | None = None
        self.first = streams
        """Its header and its whole; then the tensors, by their places."""
        self.left = len(streams)
        """Streams that are not at their end."""
        self.readers = len(streams)
        """How often each byte is consumed."""
        self._tensors: Sequence[Stream] = ()
        self._begins: list[int] = []

    def read(self, place: int, piece: memoryview) -> None:
        """Fill a piece with the bytes from this place on."""
        if self.reading is None:
            raise ValueError(f"{self.name} is not open")
        self.reading.fill(piece, place)

    def follow(self, streams: Sequence[Stream]) -> None:
        """Take up its tensors, in the order of their places."""
        self._tensors, self._begins = streams, [stream.place for stream in streams]

    def touched(self, begin: int, end: int) -> Iterator[Stream]:
        """Yield the streams that can continue now that these bytes are there."""
        yield from self.first
        first = max(0, bisect_right(self._begins, begin) - 1)
        yield from self._tensors[first : bisect_left(self._begins, end)]

    def can_continue(self, stream: Stream) -> bool:
        """Return whether the next bytes of a stream are there."""
        return self.coverage.until(stream.place) >= min(stream.place + _STEP, stream.end)


class Digester:
    """Hands streams to threads once their next bytes are there."""

    def __init__(
        self,
        sizes: Mapping[str, int],
        streams: Callable[[str, int], Sequence[Stream]],
        opening: Callable[[str], AbstractContextManager[Reading]],
        work: PrepareJob,
        where: Callable[[str], Location],
    ) -> None:
        self._files = {
            name: _File(name, size, where(name), streams(name, size))
            for name, size in sizes.items()
        }
        self._opening = opening
        self._work = work
        self._own = threading.local()
        self._lock = threading.Lock()
        self._runnable = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._queue: deque[tuple[_File, Stream]] = deque()
        self._active = 0
        self._lag = 0
        """Bytes that are there and not consumed, by each of their readers."""
        self._is_filled = False
        self._is_over = False

    def done(self, name: str, begin: int, end: int) -> None:
        """Take up bytes that are there; a source's ``Done``."""
        with self._lock:
            file = self._reported(name, begin, end)
            self._enqueue(file, file.touched(begin, end))
        self._wait()

    def filled(self) -> None:
        """Note that the source has ended; raises ValueError if it left a byte out."""
        for file in self._files.values():
            if file.size == 0:
                self.done(file.name, 0, 0)
            if (until := file.coverage.until(0)) != file.size:
                raise ValueError(f"{file.name}: {until} of {file.size} bytes were reported")
        with self._lock:
            self._is_filled = True
            self._runnable.notify_all()

    def run(self) -> None:
        """Consume streams until all bytes are; the work of one thread."""
        while (found := self._next()) is not None:
            self._consume(*found, self._buffer())

    def stop(self) -> None:
        """End all threads soon, and every call of the source."""
        with self._lock:
            self._is_over = True
            self._runnable.notify_all()
            self._room.notify_all()

    def abandon(self) -> None:
        """Close what is open; no thread may still run."""
        for file in self._files.values():
            abandon(file.opened)

    def _demand_on(self) -> None:
        if self._is_over:
            raise EndedError

    def _wait(self) -> None:
        """Return when the source may continue; raises if it must end."""
        with self._lock:
            # Without a stream that continues nothing would ever make room.
            while self._lag > _LAG and (self._active or self._queue) and not self._is_over:
                self._room.wait()
            self._demand_on()
        self._work.advance(0)

    def _buffer(self) -> memoryview:
        """Return the calling thread's own."""
        if not hasattr(self._own, "buffer"):
            self._own.buffer = memoryview(bytearray(_STEP))
        found: memoryview = self._own.buffer
        return found

    def _reported(self, name: str, begin: int, end: int) -> _File:
        self._demand_on()
        file = self._files[name]
        if end > begin:
            file.coverage.add(begin, end)
            self._lag += (end - begin) * file.readers
        if file.left and file.reading is None:
            file.reading = file.opened.enter_context(self._opening(name))
        return file

    def _next(self) -> tuple[_File, Stream] | None:
        with self._lock:
            while not self._queue:
                is_done = self._is_filled and not self._active
                if self._is_over or is_done:
                    return None
                self._runnable.wait()
            if self._is_over:
                return None
            self._active += 1
            return self._queue.popleft()

    def _consume(self, file: _File, stream: Stream, buffer: memoryview) -> None:
        """Take a stream as far as its bytes are there."""
        try:
            with damage_named(file.where):
                while until := self._until(file, stream):
                    begin = stream.place
                    while stream.place < until:
                        piece = buffer[: until - stream.place]
                        file.read(stream.place, piece)
                        stream.take(piece)
                        stream.place += len(piece)
                    self._count(until - begin, stream)
        finally:
            with self._lock:
                self._active -= 1
                self._room.notify_all()
                if not self._active:
                    self._runnable.notify_all()

    def _until(self, file: _File, stream: Stream) -> int | None:
        """Return how far to read now, None if no further; begins what follows an ended stream."""
        if stream.place == stream.end:
            following = stream.follow()
            if stream not in following:
                self._end(file, following)
                return None
        with self._lock:
            stream.is_taken = not self._is_over and file.can_continue(stream)
            there = min(file.coverage.until(stream.place), stream.end, stream.place + _BATCH)
        if there < stream.end:
            there -= (there - stream.place) % _STEP
        return there if stream.is_taken else None

    def _end(self, file: _File, following: Sequence[Stream]) -> None:
        with self._lock:
            if following:
                file.follow(following)
                self._enqueue(file, following)
            file.left += len(following) - 1
            if file.left == 0:
                file.opened.close()

    def _enqueue(self, file: _File, streams: Iterable[Stream]) -> None:
        """Hand out the streams that can continue."""
        found = [one for one in streams if not one.is_taken and file.can_continue(one)]
        for stream in found:
            stream.is_taken = True
        self._queue.extend((file, stream) for stream in found)
        self._runnable.notify(len(found))

    def _count(self, nbytes: int, stream: Stream) -> None:
        with self._lock:
            self._lag -= nbytes
            if self._lag <= _LAG:
                self._room.notify_all()
        self._work.advance(nbytes if stream.is_counted else 0)
