"""Commands for LoRA adapters."""

from pydantic import Field

from rlfleet_contract import paths
from rlfleet_contract.worker.commands import TimedCommand, Verb
from rlfleet_contract.worker.loaded_lora import AdapterName


class LoadAdapterRequest(TimedCommand):
    """Serve the adapter of a directory under a name; replaces an adapter of that name.

    Running requests end with the adapter that they began with. A failure changes nothing.
    """

    PATH = paths.ADAPTERS_PATH
    VERB = Verb.ADAPT

    name: AdapterName
    path: str = Field(min_length=1, max_length=1024)
    """Its directory in the worker's file system, beneath the root of the weights."""
    inherited: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """The digest of the adapter that a trainer has loaded at other workers under this name.
    It is loaded only if its bytes are the same and the name is free here; afterwards a trainer
    may change it, as at the other workers."""
    wait_s: float = Field(default=0, ge=0, le=600)
    """How long to wait until the adapter is complete."""
    timeout_s: float = Field(default=120, gt=0)
    """How long check and copy may take, and the same again for the engine."""

    @property
    def is_declared(self) -> bool:
        """Whether an operator requests it because the fleet's spec names it."""
        return self.fence is not None and self.inherited is None

    @property
    def limit_s(self) -> float:
        """How long the worker may take to answer, in seconds: copy, then engine."""
        return 2 * self.timeout_s


class UnloadAdapterRequest(TimedCommand):
    """Unload an adapter; succeeds if the name is not served."""

    PATH = paths.ADAPTERS_PATH
    METHOD = "DELETE"
    VERB = Verb.ADAPT

    name: AdapterName
