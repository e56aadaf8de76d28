"""What one rank had and was fed, and what of it can be told after a reload. Pure.

model_memory.py reads the memory; here it is only compared. It must stay true that what was
not read is not claimed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from rlfleet_contract.engine.rank_report import Installed, ReadBack

_NAMED = 3


class ReadTensor(NamedTuple):
    """One tensor as it was read."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    digest: int


Memory = Mapping[str, ReadTensor]


@dataclass(frozen=True, slots=True)
class RankRecord:
    """What is known of one rank since its start."""

    memory: Memory | None
    """As it was read last; None where it cannot be read."""
    fed: Memory | None = None
    """The tensors of the last reload that have a parameter of the same name and kind."""
    digest: str | None = None
    """Of all tensors of the last reload; None if some were cast, which may swallow a change."""
    sizes: tuple[int, int] = (0, 0)
    """Bytes that the model was made with, and how many of them cannot be read."""

    def told(self) -> ReadBack | None:
        """Tell what was read."""
        if self.memory is None:
            return None
        return self.sized(told(self.memory))

    def sized(self, read: ReadBack) -> ReadBack:
        """Add how much of the model that covers."""
        whole, unseen = self.sizes
        return read.model_copy(update={"whole": whole, "unseen": unseen})


def reloaded(before: RankRecord, after: RankRecord, consumed: Installed) -> Installed:
    """Tell what a reload has shown."""
    read = None
    if None not in (before.memory, after.memory):
        read = compared(before.memory or {}, after.memory or {}, after.fed or {}, before.fed)
        read = after.sized(read)
    previous = None if after.digest is None else before.digest
    return consumed.model_copy(update={"previous": previous, "parameters": read})


def told(memory: Memory) -> ReadBack:
    """Tell what was read."""
    lines = "\n".join(f"{name} {tuple(memory[name])}" for name in sorted(memory))
    return ReadBack(
        digest=sha256(lines.encode()).hexdigest()[:32],
        nbytes=sum(entry.nbytes for entry in memory.values()),
    )


def compared(before: Memory, after: Memory, fed: Memory, fed_before: Memory | None) -> ReadBack:
    """Tell what was read after a reload, and how it is related to what was fed."""
    stayed = kept(before, after, fed, fed_before)
    return told(after).model_copy(
        update={
            "changed": before != after,
            "fed": sum(entry.nbytes for entry in fed.values()),
            "as_fed": sum(one.nbytes for name, one in fed.items() if after.get(name) == one),
            "kept": tuple(sorted(stayed)[:_NAMED]),
        }
    )


def kept(before: Memory, after: Memory, fed: Memory, fed_before: Memory | None) -> list[str]:
    """Tell the parameters that stand as before though other tensors were fed for them.

    Most parameters are their tensor; a model may transform some, and those may rightly
    stay when their tensor did. Without an earlier feeding to compare with, a parameter
    that did not move counts only if nothing at all is as it was fed.
    """
    stayed = [
        name for name in fed if before.get(name) == after.get(name) and after.get(name) != fed[name]
    ]
    if fed_before is not None:
        return [name for name in stayed if fed_before.get(name) != fed[name]]
    return [] if any(after.get(name) == fed[name] for name in fed) else stayed
