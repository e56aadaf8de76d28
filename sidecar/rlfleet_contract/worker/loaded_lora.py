"""Adapters as an engine and a worker tell them: which are loaded, from where, and why not."""

from typing import Annotated

from pydantic import Field, StringConstraints

from rlfleet_contract.paths import MODEL_PATTERN
from rlfleet_contract.schema import ContractReply, ContractRequest
from rlfleet_contract.worker.problems import Problem

AdapterName = Annotated[str, StringConstraints(pattern=MODEL_PATTERN)]
"""One of its own, or the model's: whoever is asked sees whether it is one of the two."""


class AdapterReport(ContractReply):
    """One adapter of a worker."""

    name: str
    """What samplers send as ``model``."""
    version: str | None = None
    """Of what is loaded, or has to be loaded again; None if nothing ever was."""
    path: str | None = None
    """Where that lay, as the worker sees it."""
    digest: str | None = None
    """Over its tensors and its configuration."""
    is_loaded: bool = False
    """Whether this start of the engine serves it."""
    number: int | None = None
    """vLLM's own (lora_int_id): another one after each load; None while it is not loaded."""
    is_declared: bool = False
    """Whether the fleet's spec owns it: an operator's command brought it."""
    problem: Problem | None = None
    """Why the last command about it failed; its version is the one that was asked for."""


class AdapterList(ContractReply):
    """The answer to GET adapters."""

    adapters: list[AdapterReport]


class EngineAdapters(ContractReply):
    """What the extension tells of this start of the engine."""

    boot: str
    adapters: dict[str, str]
    """The directory from which each was loaded, by name."""
    numbers: dict[str, int] = Field(default_factory=dict)
    """vLLM's own number of each (lora_int_id): a new one with each load."""
    under_way: frozenset[str] = frozenset()
    """Names for which a load has begun and has not ended, though its caller may be gone."""


class EngineAdapterCommand(ContractRequest):
    """Have the engine serve an adapter under a name, at once and whole; or no more."""

    boot: str
    name: AdapterName
    directory: str | None = Field(default=None, max_length=4096)
    """None: the name is forgotten."""
    root: str | None = Field(default=None, max_length=4096)
    """What /v1/models tells as the adapter's root; None: ``directory``."""
