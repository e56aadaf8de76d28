"""What a caller asks about adapters."""

from pydantic import Field

from rlfleet_contract import paths
from rlfleet_contract.worker.commands import TimedCommand, Verb
from rlfleet_contract.worker.loaded_lora import AdapterName


class LoadAdapterRequest(TimedCommand):
    """Serve the adapter of a directory under a name, in place of what has the name.

    Requests that run go on with what they began with. If it cannot be loaded, all stays.
    """

    PATH = paths.ADAPTERS_PATH
    VERB = Verb.ADAPT

    name: AdapterName
    path: str = Field(min_length=1, max_length=1024)
    """Its directory, as the worker sees it, beneath the root of the weights."""
    inherited: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """The digest of what a trainer has loaded at other workers under this name.
    It is loaded only if it is these bytes and nothing has the name here; it is a trainer's
    to change then, as there."""
    wait_s: float = Field(default=0, ge=0, le=600)
    """How long to wait for an adapter that is not complete."""
    timeout_s: float = Field(default=120, gt=0)
    """How long the check and the copy may take, and then the engine."""

    @property
    def is_declared(self) -> bool:
        """Whether an operator asks for it because the fleet's spec names it."""
        return self.fence is not None and self.inherited is None

    @property
    def limit_s(self) -> float:
        """How long the copy and the engine may take, each its time, in seconds."""
        return 2 * self.timeout_s


class UnloadAdapterRequest(TimedCommand):
    """Stop serving a name; it is no error if it is not served."""

    PATH = paths.ADAPTERS_PATH
    METHOD = "DELETE"
    VERB = Verb.ADAPT

    name: AdapterName
