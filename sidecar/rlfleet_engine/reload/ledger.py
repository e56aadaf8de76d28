"""Which of the tensors that a load was given it read. Pure.

A tensor is known by its storage and by its place there, because a view has both. It must
stay true that a tensor which was read counts as read: what nobody sees being read is not
demanded of a version.
"""

from bisect import bisect_right, insort


class Ledger:
    """The tensors that came, and the names of those that were read."""

    def __init__(self) -> None:
        self._begins: dict[int, list[int]] = {}
        self._named: dict[tuple[int, int], tuple[int, str]] = {}
        self.read: set[str] = set()

    def came(self, name: str, storage: int, begin: int, end: int) -> None:
        """Note where a tensor's bytes are; what stood there before is gone."""
        if (storage, begin) not in self._named:
            insort(self._begins.setdefault(storage, []), begin)
        self._named[storage, begin] = end, name

    def is_known(self, storage: int) -> bool:
        """Tell whether any tensor came in this storage."""
        return storage in self._begins

    def reads(self, storage: int, begin: int) -> None:
        """Note that what begins somewhere in a tensor was read."""
        begins = self._begins.get(storage, [])
        place = bisect_right(begins, begin) - 1
        if place < 0:
            return
        end, name = self._named[storage, begins[place]]
        if begin < end:
            self.read.add(name)
