"""Which LoRA adapters a worker must serve. Pure.

If the spec names adapters, these. Else trainers load adapters at the workers that they know; a
later worker gets the adapters of its peers before it takes traffic. An adapter that a trainer
has loaded at a worker itself stays.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rlfleet_contract.worker.loaded_lora import AdapterReport
from rlfleet_operator.crd.lora import AdapterSpec


@dataclass(frozen=True, slots=True)
class WantedLoRA:
    """A LoRA adapter that a worker must serve."""

    name: str
    version: str
    directory: str
    """Its path inside the worker's pod."""
    inherited: str | None = None
    """The digest of the peers' adapter, if it is copied from them; None for the spec's."""


def declared(adapters: Sequence[AdapterSpec]) -> tuple[WantedLoRA, ...]:
    """Return the adapters that the spec names, in its order."""
    return tuple(WantedLoRA(one.name, one.version, one.directory) for one in adapters)


Shelf = Sequence[AdapterReport]
"""The adapters that one worker reports."""


def of_trainers(in_traffic: Sequence[Shelf], all_known: Sequence[Shelf]) -> tuple[WantedLoRA, ...]:
    """Return, for each name that a trainer loaded, the adapter that most workers in traffic have.

    A name that most workers lack is being unloaded and is left out. In a tie the first worker
    counts. While no worker is in traffic, the worker with the most adapters counts.
    """
    shelves = [_of_trainer(shelf) for shelf in in_traffic]
    if not shelves:
        shelves = sorted(map(_of_trainer, all_known), key=len, reverse=True)[:1]
    names = sorted({name for shelf in shelves for name in shelf})
    votes = (Counter(shelf.get(name) for shelf in shelves) for name in names)
    most = (vote.most_common(1)[0][0] for vote in votes)
    return tuple(one for one in most if one is not None)


def _of_trainer(shelf: Shelf) -> dict[str, WantedLoRA]:
    """Return the adapters that a trainer loaded and that the sidecar loads after each restart."""
    return {
        one.name: WantedLoRA(one.name, one.version, one.path, one.digest)
        for one in shelf
        if not one.is_declared and one.version and one.path and one.digest
    }
