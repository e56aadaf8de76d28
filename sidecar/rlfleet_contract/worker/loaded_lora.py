"""LoRA adapters in the reports of engine and worker."""

from typing import Annotated

from pydantic import Field, StringConstraints

from rlfleet_contract.paths import MODEL_PATTERN
from rlfleet_contract.schema import ContractReply, ContractRequest
from rlfleet_contract.worker.problems import Problem

AdapterName = Annotated[str, StringConstraints(pattern=MODEL_PATTERN)]
"""An adapter's name or the model's; the receiver checks which."""


class AdapterReport(ContractReply):
    """One adapter of a worker."""

    name: str
    """The value of ``model`` in samplers' requests."""
    version: str | None = None
    """The version that is loaded or must be loaded again; None if none ever was."""
    path: str | None = None
    """Its directory, in the worker's file system."""
    digest: str | None = None
    """Over its tensors and configuration."""
    is_loaded: bool = False
    """Whether the engine's current boot serves it."""
    number: int | None = None
    """vLLM's lora_int_id, which changes with each load; None while it is not loaded."""
    is_declared: bool = False
    """Whether the fleet's spec owns it, so that an operator's command loaded it."""
    problem: Problem | None = None
    """Why the last command for it failed, with the requested version."""


class AdapterList(ContractReply):
    """The answer to GET adapters."""

    adapters: list[AdapterReport]


class EngineAdapters(ContractReply):
    """The adapters of the engine's current boot, as the extension reports them."""

    boot: str
    adapters: dict[str, str]
    """The directory of each, by name."""
    numbers: dict[str, int] = Field(default_factory=dict)
    """vLLM's lora_int_id of each, which changes with each load."""
    under_way: frozenset[str] = frozenset()
    """Names with a load under way, even if its caller is gone."""


class EngineAdapterCommand(ContractRequest):
    """Have the engine load an adapter under a name, atomically, or unload it."""

    boot: str
    name: AdapterName
    directory: str | None = Field(default=None, max_length=4096)
    """None unloads the adapter."""
    root: str | None = Field(default=None, max_length=4096)
    """The adapter's root in /v1/models; None: ``directory``."""
