"""What one rank of an engine tells: what its boot read, a reload consumed, its memory holds."""

from rlfleet_contract.engine.tensor_names import Experts, Renames
from rlfleet_contract.schema import ContractReply


class ReadBack(ContractReply):
    """What stands in one rank's memory, as far as it can be read."""

    digest: str
    """Over names, dtypes, shapes and bytes of parameters, persistent buffers and packed weights."""
    nbytes: int
    """How much memory that covers."""
    whole: int = 0
    """Bytes that the model was made with on this rank, packed or not; 0 when unknown."""
    unseen: int = 0
    """How many of these cannot be read, because a kernel keeps them where nothing else looks."""
    changed: bool | None = None
    """Whether it is other than what stood there before the load; None when nobody knows."""
    fed: int = 0
    """Bytes of the tensors that a parameter of the same name, dtype and shape stands for."""
    as_fed: int = 0
    """How many of these stand in memory exactly as the tensor came."""
    kept: tuple[str, ...] = ()
    """Some parameters that did not change though their tensors did."""

    @property
    def share(self) -> float | None:
        """How much of the model was read, from 0 to 1; None when unknown."""
        return 1 - self.unseen / self.whole if self.whole else None


class Consumed(ContractReply):
    """What one rank's own load, when the engine booted, made of the tensors that it was given."""

    names: str
    """Packed (tensor_names.packed): those that it read. It ignored the others."""
    tied: bool = False
    """Whether the head is the embeddings: one parameter, or no head at all."""
    renames: Renames | None = None
    """By which names that differ may be of one parameter; None where that is unknown."""
    experts: Experts | None = None
    """Which experts may be fused or not; None where the engine takes one form only."""
    ranks: int = 1
    """How many ranks the model is spread over, in all engines."""


class Installed(ContractReply):
    """What one rank of the engine consumed during a reload, and what it holds now."""

    tensors: int
    nbytes: int
    digest: str
    """Over names, shapes, dtypes and bytes of all tensors, in name order."""
    previous: str | None = None
    """The digest of the reload before, in the same boot, if memory must differ when it does."""
    parameters: ReadBack | None = None
    """None where the memory cannot be read."""
