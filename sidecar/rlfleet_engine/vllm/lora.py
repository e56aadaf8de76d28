"""Replaces a LoRA adapter under a name atomically and without a pause, by vLLM's objects.

vLLM's own routes cannot: between unload and load the name is unknown, and a load in place
overwrites the adapter of running requests and reads the disk in every step. So this module loads
each adapter under an internal name, then points the name that samplers send to it. Running
requests keep the old adapter, new ones get the new one, and a failed load changes nothing.

The name may be the model's own, as prime-rl uses it, because vLLM looks up adapters first. A
request without a model name still gets the base model; the sidecar's probe uses that.

No two loads may have the same internal name: vLLM identifies an adapter in a batch by its name,
two of one name end the engine, and the prefix cache uses name and directory. A load that its
caller gave up must not take the name from a later command.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import ValidationError

from rlfleet_contract.paths import ADAPTER_PATTERN, LEFT_OUT_RPC
from rlfleet_contract.worker.loaded_lora import EngineAdapterCommand, EngineAdapters
from rlfleet_engine.asgi import Scope, compact
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import HeldRequest, Receive
from rlfleet_engine.vllm.adapter_modules import left_out_by_all
from rlfleet_engine.vllm.served import models_of

_OK, _REFUSED, _RESTARTED = 200, 400, 409
_MAX_COMMAND_BYTES = 16 * 1024
_TURN = count(1)
_MARK = "#"
"""Separates the samplers' name, which cannot contain it, from the number of the load."""


@dataclass(frozen=True, slots=True)
class _Load:
    """The fields of a request that vLLM's load_lora_adapter reads."""

    lora_name: str
    lora_path: str
    load_inplace: bool = False
    is_3d_lora_weight: bool = False


@dataclass(frozen=True, slots=True)
class _Unload:
    """The fields of a request that vLLM's unload_lora_adapter reads."""

    lora_name: str
    lora_int_id: int | None = None


@dataclass(frozen=True, slots=True)
class _Commands:
    """The commands to one vLLM server, by name."""

    newest: dict[str, int] = field(default_factory=dict)
    """The number of the last command that started."""
    under_way: set[tuple[str, int]] = field(default_factory=set)
    """Loads under way."""


_COMMANDS: WeakKeyDictionary[Any, _Commands] = WeakKeyDictionary()


class AdapterError(Exception):
    """A command failed and changed nothing."""


async def answered(scope: Scope, receive: Receive, gate: Gate) -> tuple[int, bytes]:
    """Return status and body for a request to the control route."""
    try:
        if scope["method"] == "GET":
            return _OK, listed(scope, gate).model_dump_json().encode()
        command = EngineAdapterCommand.model_validate_json(
            await HeldRequest(receive).body(_MAX_COMMAND_BYTES)
        )
        if command.boot != gate.boot:
            return _RESTARTED, b"{}"
        return _OK, (await carried_out(scope, gate, command)).model_dump_json().encode()
    except (AdapterError, ValidationError) as error:
        return _REFUSED, compact({"error": str(error)})


def listed(scope: Scope, gate: Gate) -> EngineAdapters:
    """Return the adapters that are served, and the loads under way."""
    models = _models(scope)
    requests = models.lora_requests
    return EngineAdapters(
        boot=gate.boot,
        adapters={name: request.lora_path for name, request in requests.items()},
        numbers={name: request.lora_int_id for name, request in requests.items()},
        under_way=frozenset(name for name, _ in _commands(models).under_way),
    )


async def carried_out(scope: Scope, gate: Gate, command: EngineAdapterCommand) -> EngineAdapters:
    """Load or unload an adapter; raises AdapterError, which changes nothing."""
    if (processes := gate.processes()) > 1:
        raise AdapterError(
            f"cannot load adapters with {processes} API server processes (expected 1): each has"
            " its own list; remove --api-server-count"
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
        raise AdapterError(f"invalid adapter name {name}; use the model's name, or change it")
    _dress(models)
    commands, turn = _commands(models), next(_TURN)
    commands.newest[name] = turn
    commands.under_way.add((name, turn))
    inner = f"{name}{_MARK}{turn}"
    try:
        reply = await models.load_lora_adapter(_Load(inner, directory))
        if not isinstance(reply, str):
            raise AdapterError(f"vLLM failed to load {directory}: {reply.error.message}")
        # No other task has run since that call returned.
        loaded = models.lora_requests.pop(inner)
        await _demand_whole(models.engine_client, loaded.lora_int_id, directory)
    finally:
        commands.under_way.discard((name, turn))
        models.lora_resolver_lock.pop(inner, None)
    if commands.newest[name] != turn:
        raise AdapterError(f"load of {directory} superseded by a later command for {name}")
    models.lora_requests[name] = loaded


async def _demand_whole(engine: Any, number: int, directory: str) -> None:
    """Raise if the engine ignores modules of a loaded adapter."""
    ranks = await engine.collective_rpc(LEFT_OUT_RPC, args=(number,))
    if lost := left_out_by_all(ranks):
        names = sorted({name.rpartition(".")[2] for name in lost})
        raise AdapterError(
            f"vLLM ignores {', '.join(names)} of {directory} ({len(lost)} modules, such as"
            f" {lost[0]}); add {'it' if len(names) == 1 else 'them'} to engine.args"
            " --lora-target-modules, or train without"
        )


async def _forget(models: Any, name: str) -> None:
    _commands(models).newest[name] = next(_TURN)
    if name in models.lora_requests:
        await models.unload_lora_adapter(_Unload(name))
    models.lora_resolver_lock.pop(name, None)


def _commands(models: Any) -> _Commands:
    return _COMMANDS.setdefault(models, _Commands())


def _dress(models: Any) -> None:
    """Make replies and the list of models show the samplers' names."""
    if isinstance(models.model_name, _OuterName):
        return
    models.model_name = _OuterName(models.model_name)
    models.show_available_models = _OuterCards(models.show_available_models)


@dataclass(frozen=True, slots=True)
class _OuterName:
    """Replaces vLLM's model_name."""

    inner: Callable[..., str]

    def __call__(self, lora_request: Any = None) -> str:
        return _outer(self.inner(lora_request)) if lora_request else self.inner()


@dataclass(frozen=True, slots=True)
class _OuterCards:
    """Replaces vLLM's show_available_models."""

    inner: Callable[[], Awaitable[Any]]
    roots: dict[str, str] = field(default_factory=dict)
    """The trainer's directory of each adapter; the engine knows only the sidecar's copy."""

    async def __call__(self) -> Any:
        listed = await self.inner()
        models = {card.id for card in listed.data if card.parent is None}
        for card in listed.data:
            if card.parent is not None:
                card.id = _outer(card.id)
                card.root = self.roots.get(card.id, card.root)
        # One card per name: the model's, which has the maximum context length.
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
        raise AdapterError("vLLM's list of models is not available yet; retry once it is ready")
    return models
