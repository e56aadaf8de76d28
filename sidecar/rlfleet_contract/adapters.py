"""What a caller asks about adapters."""

from pydantic import Field

from rlfleet_contract.loaded import AdapterName
from rlfleet_contract.models import Command


class LoadAdapterRequest(Command):
    """Serve the adapter of a directory under a name, in the place of whatever has the name.

    Requests that run go on with what they began with. If it cannot be loaded, all stays.
    """

    name: AdapterName
    path: str = Field(min_length=1, max_length=1024)
    """Its directory, as the worker sees it, beneath the root of the weights."""
    wait_s: float = Field(default=0, ge=0, le=600)
    """How long to wait for an adapter that is not complete."""
    timeout_s: float = Field(default=120, gt=0)
    """How long the check and the copy may take, and then the engine."""


class UnloadAdapterRequest(Command):
    """Serve a name no more; it is no error if it is not served."""

    name: AdapterName
    timeout_s: float = Field(default=30, gt=0)
