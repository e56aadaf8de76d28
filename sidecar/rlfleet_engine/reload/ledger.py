"""Which tensors of a checkpoint a load has read. Pure.

Storage and offset identify a tensor, because views share them. Every tensor that was read must
count as read: a version need not have tensors that no load reads.
"""

from bisect import bisect_right, insort


class Ledger:
    """The tensors passed to a load, and the names of those that it read."""

    def __init__(self) -> None:
        self._begins: dict[int, list[int]] = {}
        self._named: dict[tuple[int, int], tuple[int, str]] = {}
        self.read: set[str] = set()

    def came(self, name: str, storage: int, begin: int, end: int) -> None:
        """Record where a tensor's bytes are; replaces an earlier tensor there."""
        if (storage, begin) not in self._named:
            insort(self._begins.setdefault(storage, []), begin)
        self._named[storage, begin] = end, name

    def is_known(self, storage: int) -> bool:
        """Return whether a tensor lies in this storage."""
        return storage in self._begins

    def reads(self, storage: int, begin: int) -> None:
        """Record a read that starts at this offset."""
        begins = self._begins.get(storage, [])
        place = bisect_right(begins, begin) - 1
        if place < 0:
            return
        end, name = self._named[storage, begins[place]]
        if begin < end:
            self.read.add(name)
