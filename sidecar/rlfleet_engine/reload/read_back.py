"""Compares a rank's memory before and after a reload with the tensors that it loaded. Pure.

model_memory.py reads the memory. The result must claim nothing about bytes that were not read.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from rlfleet_contract.engine.rank_report import ReadBack

_NAMED = 3


class ReadTensor(NamedTuple):
    """One tensor's kind, size and digest."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    digest: int


Memory = Mapping[str, ReadTensor]


@dataclass(frozen=True, slots=True)
class RankRecord:
    """The last state of one rank."""

    memory: Memory | None
    """As it was read last; None if it cannot be read."""
    fed: Memory | None = None
    """The tensors of the last reload that have a parameter of the same name and kind."""
    digest: str | None = None
    """Of all tensors of the last reload; None if some were cast, which may hide a change."""
    sizes: tuple[int, int] = (0, 0)
    """The model's bytes at its creation, and how many of them cannot be read."""
    plain: frozenset[str] = frozenset()
    """Parameters that the model stores as their tensors are; see ``stored_plainly``."""

    def read_back(self) -> ReadBack | None:
        """Return the report of this memory; None if it cannot be read."""
        if self.memory is None:
            return None
        return self.sized(report_of(self.memory))

    def sized(self, read: ReadBack) -> ReadBack:
        """Add how much of the model a report covers."""
        whole, unseen = self.sizes
        return read.model_copy(update={"whole": whole, "unseen": unseen})


def reloaded(before: RankRecord, after: RankRecord) -> ReadBack | None:
    """Return the report of the memory after a reload; None if it cannot be read."""
    if before.memory is None or after.memory is None:
        return None
    read = compared(before.memory, after.memory, after.fed or {}, before.fed)
    wrong = differing(after.memory, after.fed or {}, before.plain)
    return after.sized(read).model_copy(update={"differing": tuple(wrong[:_NAMED])})


def comparable(before: RankRecord, digest: str | None) -> str | None:
    """Return the digest of the reload before, if memory must differ where the digests do."""
    return None if digest is None else before.digest


def stored_plainly(after: RankRecord, moved: Iterable[str]) -> frozenset[str]:
    """Return the parameters that a reload with random values for ``moved`` shows to be plain.

    Weights of a checkpoint show nothing: those that are all zero or one also equal a parameter
    that permutes or scales its tensor.
    """
    memory, fed = after.memory or {}, after.fed or {}
    return frozenset(name for name in moved if name in fed and memory.get(name) == fed[name])


def differing(after: Memory, fed: Memory, plain: AbstractSet[str]) -> list[str]:
    """Return the plain parameters that have other values than their tensors."""
    return sorted(name for name in plain & fed.keys() if after.get(name) != fed[name])


def report_of(memory: Memory) -> ReadBack:
    """Return digest and size of a memory."""
    lines = "\n".join(f"{name} {tuple(memory[name])}" for name in sorted(memory))
    return ReadBack(
        digest=sha256(lines.encode()).hexdigest()[:32],
        nbytes=sum(entry.nbytes for entry in memory.values()),
    )


def compared(before: Memory, after: Memory, fed: Memory, fed_before: Memory | None) -> ReadBack:
    """Return the report of the memory after a reload, compared with the loaded tensors."""
    stayed = kept(before, after, fed, fed_before)
    return report_of(after).model_copy(
        update={
            "changed": before != after,
            "fed": sum(entry.nbytes for entry in fed.values()),
            "as_fed": sum(one.nbytes for name, one in fed.items() if after.get(name) == one),
            "kept": tuple(sorted(stayed)[:_NAMED]),
        }
    )


def kept(before: Memory, after: Memory, fed: Memory, fed_before: Memory | None) -> list[str]:
    """Return the parameters that did not change although other tensors were loaded for them.

    Most parameters equal their tensor. A model may transform some, which may stay if their tensor
    stays. Without an earlier reload to compare with, an unchanged parameter counts only if no
    parameter equals its tensor.
    """
    stayed = [
        name for name in fed if before.get(name) == after.get(name) and after.get(name) != fed[name]
    ]
    if fed_before is not None:
        return [name for name in stayed if fed_before.get(name) != fed[name]]
    return [] if any(after.get(name) == fed[name] for name in fed) else stayed
