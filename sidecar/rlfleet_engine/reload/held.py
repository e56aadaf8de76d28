"""What a preload holds of a version. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rlfleet_contract.engine.safetensors import Tensor


class HeldTensor(NamedTuple):
    """A tensor in sealed memory, and the hash of exactly these bytes."""

    data: memoryview
    digest: bytes
    word_sum: int
    """The same bytes' digest as model_memory.py computes it."""


@dataclass(frozen=True, slots=True)
class HeldFile:
    """What is held of one file."""

    tensors: tuple[Tensor, ...]
    """All tensors of the file."""
    held: dict[str, HeldTensor] = field(default_factory=dict)
    """Those that were digested already, by name."""

    @property
    def is_whole(self) -> bool:
        """Whether the file itself is not needed."""
        return len(self.held) == len(self.tensors)

    def copy(self) -> "HeldFile":
        """Return what is held now."""
        return HeldFile(self.tensors, dict(self.held))


HeldFiles = Mapping[str, HeldFile]
"""By the file's name."""


def held_bytes(files: HeldFiles) -> int:
    """Return how many bytes are held, also while a thread adds to them."""
    return sum(len(one.data) for file in [*files.values()] for one in [*file.held.values()])
