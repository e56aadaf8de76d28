"""Which adapters a worker shall serve. Pure.

The spec's, if it names any. Else they are its trainers' own, who load them at the workers
that they know; one that came later, and takes no traffic yet, shall begin with what the
others serve. Whatever a trainer has loaded at a worker itself stays as it is.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rlfleet_contract.worker.loaded_lora import AdapterReport
from rlfleet_operator.crd.lora import AdapterSpec


@dataclass(frozen=True, slots=True)
class WantedLoRA:
    """An adapter that a worker shall serve."""

    name: str
    version: str
    directory: str
    """Where it lies, as a worker sees it."""
    inherited: str | None = None
    """The digest of what others serve, for one that is brought along; None for the spec's."""


def declared(adapters: Sequence[AdapterSpec]) -> tuple[WantedLoRA, ...]:
    """Return what the spec names, in its order."""
    return tuple(WantedLoRA(one.name, one.version, one.directory) for one in adapters)


Shelf = Sequence[AdapterReport]
"""What one worker tells of its adapters."""


def of_trainers(in_traffic: Sequence[Shelf], all_known: Sequence[Shelf]) -> tuple[WantedLoRA, ...]:
    """Return what most of those in traffic have under each name that is a trainer's.

    A name that most of them do not have is on its way out. Of two with as many workers it is
    what the first worker has. While none is in traffic it is whatever one has that has most.
    """
    shelves = [_of_trainer(shelf) for shelf in in_traffic]
    if not shelves:
        shelves = sorted(map(_of_trainer, all_known), key=len, reverse=True)[:1]
    names = sorted({name for shelf in shelves for name in shelf})
    votes = (Counter(shelf.get(name) for shelf in shelves) for name in names)
    most = (vote.most_common(1)[0][0] for vote in votes)
    return tuple(one for one in most if one is not None)


def _of_trainer(shelf: Shelf) -> dict[str, WantedLoRA]:
    """Return what a trainer has a worker serve, now and after each start of its engine."""
    return {
        one.name: WantedLoRA(one.name, one.version, one.path, one.digest)
        for one in shelf
        if not one.is_declared and one.version and one.path and one.digest
    }
