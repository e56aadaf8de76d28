"""Adapters under names, by vLLM's own serving objects: at once, whole, and without a pause.

vLLM's own routes cannot do that: an unload and a load leave a moment in which the name is
unknown, and its load in place writes over what requests that run compute with, and reads
the disk again in every step. Here vLLM loads each adapter under a name of its own, and
then the name that samplers send is led to it: who came before ends with the old one, who
comes after begins with the new one, and one that cannot be loaded has changed nothing.

One of them may be the model's own, as prime-rl has it: vLLM looks for an adapter of a
request's name before it looks for a model's. Then a request that names no model is still
answered by the model itself, and so the sidecar asks.

It must stay true that no two loads ever have the same name in the engine: vLLM's batches
know an adapter by its name, and one with two of the same name ends the engine; and its
prefix cache knows one by its name and its directory. And that a load which its caller gave
up takes no name from a command that came after it.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import ValidationError

from rlfleet_contract.paths import ADAPTER_PATTERN
from rlfleet_contract.worker.loaded_lora import EngineAdapterCommand, EngineAdapters
from rlfleet_engine.asgi import Scope, compact
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import Held, Receive
from rlfleet_engine.vllm.served import models_of

_OK, _REFUSED, _RESTARTED = 200, 400, 409
_MAX_COMMAND_BYTES = 16 * 1024
_TURN = count(1)
_MARK = "#"
"""Between the name that samplers send, which cannot hold it, and the number of the load."""


@dataclass(frozen=True, slots=True)
class _Load:
    """What vLLM's load_lora_adapter reads of a request."""

    lora_name: str
    lora_path: str
    load_inplace: bool = False
    is_3d_lora_weight: bool = False


@dataclass(frozen=True, slots=True)
class _Unload:
    """What vLLM's unload_lora_adapter reads of a request."""

    lora_name: str
    lora_int_id: int | None = None


@dataclass(frozen=True, slots=True)
class _Commands:
    """Which commands one vLLM was given for each name."""

    newest: dict[str, int] = field(default_factory=dict)
    """The turn of the last one that has begun."""
    under_way: set[tuple[str, int]] = field(default_factory=set)
    """Loads that have not ended."""


_COMMANDS: WeakKeyDictionary[Any, _Commands] = WeakKeyDictionary()


class AdapterError(Exception):
    """The engine did not do it; all is as it was."""


async def answered(scope: Scope, receive: Receive, gate: Gate) -> tuple[int, bytes]:
    """Answer the control route: a status and a body."""
    try:
        if scope["method"] == "GET":
            return _OK, listed(scope, gate).model_dump_json().encode()
        command = EngineAdapterCommand.model_validate_json(
            await Held(receive).body(_MAX_COMMAND_BYTES)
        )
        if command.boot != gate.boot:
            return _RESTARTED, b"{}"
        return _OK, (await carried_out(scope, gate, command)).model_dump_json().encode()
    except (AdapterError, ValidationError) as error:
        return _REFUSED, compact({"error": str(error)})


def listed(scope: Scope, gate: Gate) -> EngineAdapters:
    """Tell which adapters are served."""
    models = _models(scope)
    requests = models.lora_requests
    return EngineAdapters(
        boot=gate.boot,
        adapters={name: request.lora_path for name, request in requests.items()},
        numbers={name: request.lora_int_id for name, request in requests.items()},
        under_way=frozenset(name for name, _ in _commands(models).under_way),
    )


async def carried_out(scope: Scope, gate: Gate, command: EngineAdapterCommand) -> EngineAdapters:
    """Serve an adapter under a name, or no more; raises AdapterError, and then all stays."""
    if gate.processes() > 1:
        raise AdapterError(
            "vLLM runs more than one API server, and each would know its own adapters: leave out"
            " --api-server-count"
        )
    models = _models(scope)
    if command.directory is None:
        await _forget(models, command.name)
    else:
        await _serve(models, command.name, command.directory)
        _roots(models)[command.name] = command.root or command.directory
    return listed(scope, gate)


async def _serve(models: Any, name: str, directory: str) -> None:
    if not re.fullmatch(ADAPTER_PATTERN, name) and not models.is_base_model(name):
        raise AdapterError(f"{name} is neither an adapter's name nor the model's")
    _dress(models)
    commands, turn = _commands(models), next(_TURN)
    commands.newest[name] = turn
    commands.under_way.add((name, turn))
    inner = f"{name}{_MARK}{turn}"
    try:
        told = await models.load_lora_adapter(_Load(inner, directory))
    finally:
        commands.under_way.discard((name, turn))
        models.lora_resolver_lock.pop(inner, None)
    if not isinstance(told, str):
        raise AdapterError(f"vLLM does not load {directory}: {told.error.message}")
    # From its return to here nothing else has run.
    loaded = models.lora_requests.pop(inner)
    if commands.newest[name] != turn:
        raise AdapterError(f"another command for {name} came after the load of {directory}")
    models.lora_requests[name] = loaded


async def _forget(models: Any, name: str) -> None:
    _commands(models).newest[name] = next(_TURN)
    if name in models.lora_requests:
        await models.unload_lora_adapter(_Unload(name))
    models.lora_resolver_lock.pop(name, None)


def _commands(models: Any) -> _Commands:
    return _COMMANDS.setdefault(models, _Commands())


def _dress(models: Any) -> None:
    """Have replies and the list of models tell names as samplers know them."""
    if isinstance(models.model_name, _OuterName):
        return
    models.model_name = _OuterName(models.model_name)
    models.show_available_models = _OuterCards(models.show_available_models)


@dataclass(frozen=True, slots=True)
class _OuterName:
    """Stands in for vLLM's model_name."""

    inner: Callable[..., str]

    def __call__(self, lora_request: Any = None) -> str:
        return _outer(self.inner(lora_request)) if lora_request else self.inner()


@dataclass(frozen=True, slots=True)
class _OuterCards:
    """Stands in for vLLM's show_available_models."""

    inner: Callable[[], Awaitable[Any]]
    roots: dict[str, str] = field(default_factory=dict)
    """Where the trainer put each adapter: the engine knows our copy alone."""

    async def __call__(self) -> Any:
        listed = await self.inner()
        models = {card.id for card in listed.data if card.parent is None}
        for card in listed.data:
            if card.parent is not None:
                card.id = _outer(card.id)
                card.root = self.roots.get(card.id, card.root)
        # Under one name there is one card: the model's, which tells how long a prompt may be.
        listed.data = [c for c in listed.data if c.parent is None or c.id not in models]
        return listed


def _roots(models: Any) -> dict[str, str]:
    cards = models.show_available_models
    return cards.roots if isinstance(cards, _OuterCards) else {}


def _outer(name: str) -> str:
    return name.partition(_MARK)[0]


def _models(scope: Scope) -> Any:
    models = models_of(scope)
    if models is None:
        raise AdapterError("vLLM serves no models under which adapters could be")
    return models
