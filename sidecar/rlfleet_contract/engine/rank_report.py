"""What one rank of an engine reports: tensors read at boot and by a reload, and its memory."""

from rlfleet_contract.engine.tensor_names import Experts, Renames
from rlfleet_contract.schema import ContractReply


class ReadBack(ContractReply):
    """The weights in one rank's memory, as far as they can be read."""

    digest: str
    """Over names, dtypes, shapes and bytes of parameters, persistent buffers and packed weights."""
    nbytes: int
    """Bytes that ``digest`` covers."""
    whole: int = 0
    """Bytes of the model on this rank at its creation, packed or not; 0 when unknown."""
    unseen: int = 0
    """How many of these cannot be read, because a kernel keeps a private copy."""
    changed: bool | None = None
    """Whether it differs from the memory before the load; None when unknown."""
    fed: int = 0
    """Bytes of the tensors that have a parameter of the same name, dtype and shape."""
    as_fed: int = 0
    """How many of these are in memory unchanged."""
    kept: tuple[str, ...] = ()
    """Some parameters that did not change although their tensors did."""
    differing: tuple[str, ...] = ()
    """Some parameters that differ from their tensors, although this engine stores these as they
    are: a reload with random values has shown that."""

    @property
    def share(self) -> float | None:
        """How much of the model was read, from 0 to 1; None when unknown."""
        return 1 - self.unseen / self.whole if self.whole else None


class Consumed(ContractReply):
    """What one rank did with the given tensors when the engine booted."""

    names: str
    """The tensors that it read, packed (tensor_names.packed). It ignored the others."""
    tied: bool = False
    """Whether head and embeddings are one parameter, or there is no head."""
    renames: Renames | None = None
    """How different names lead to one parameter; None when unknown."""
    experts: Experts | None = None
    """Which experts may be fused or separate; None if the engine loads one form only."""
    ranks: int = 1
    """Ranks of the model, over all engines."""
    omits_drafters: bool = False
    """Whether a reload leaves out a drafter's tensors that the boot did not read; an older
    extension passes them to vLLM, where some loaders fail."""


class Installed(ContractReply):
    """The tensors that one rank consumed in a reload."""

    tensors: int
    nbytes: int
    digest: str
    """Over names, shapes, dtypes and bytes of all tensors, in name order."""
    previous: str | None = None
    """The digest of the reload before in this boot, if memory must differ when digests do."""
    reads_memory: bool = False
    """Whether memory is read now, and paths.RELOADED_RPC returns it."""
    parameters: ReadBack | None = None
    """The memory from an older extension, which reads it in the reload; None if it cannot."""
    preloaded: int = 0
    """How many of the bytes a preload had read and digested before."""
    changed: int | None = None
    """How many tensors got other values than the files', for the self-test; None when unknown."""


class Preloaded(ContractReply):
    """How far one rank's preload of a version is."""

    nbytes: int = 0
    """Bytes that are in memory and digested."""
    total: int = 0
    """Bytes of the version; 0 until the headers are read."""
    zeroed: int = 0
    """Bytes of zeroed memory that wait for the reload's parameters."""
    is_reading: bool = False
    why: str | None = None
    """Why it ended without all of them."""
