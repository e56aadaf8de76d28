"""Which bytes of one file are there. Pure."""

from bisect import bisect_left, bisect_right


class Coverage:
    """Disjoint ranges of one file's bytes."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def add(self, begin: int, end: int) -> None:
        """Add a range; raises ValueError if a byte of it was added before."""
        at = bisect_right(self._begins, begin)
        is_free = at == 0 or self._ends[at - 1] <= begin
        if not is_free or (at < len(self._begins) and self._begins[at] < end):
            raise ValueError(f"bytes {begin} to {end} were reported twice")
        joins_before = at > 0 and self._ends[at - 1] == begin
        joins_after = at < len(self._begins) and self._begins[at] == end
        first, last = at - joins_before, at + joins_after
        begins = [self._begins[first] if joins_before else begin]
        ends = [self._ends[last - 1] if joins_after else end]
        self._begins[first:last] = begins
        self._ends[first:last] = ends

    def until(self, place: int) -> int:
        """Return the end of the range that holds this byte; the byte itself if none does."""
        at = bisect_left(self._ends, place + 1)
        is_held = at < len(self._begins) and self._begins[at] <= place
        return self._ends[at] if is_held else place
