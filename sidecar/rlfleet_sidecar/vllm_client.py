"""The client of the pod's vLLM, over loopback: a fixed list of calls.

No error of httpx leaves this module: an unexpected answer is an EngineError, no answer an
EngineLostError. Only connecting has a timeout; callers know how long a step may take.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from rlfleet_contract import paths
from rlfleet_contract.engine.gate import Fallback, GateAction, GateCommand, GateState
from rlfleet_contract.engine.rank_report import Consumed, Installed, Preloaded, ReadBack
from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.worker.commands import KVCache, PauseMode
from rlfleet_contract.worker.loaded_lora import EngineAdapterCommand, EngineAdapters
from rlfleet_contract.worker.selftest import EngineDescription
from rlfleet_sidecar.engine_transport import EngineTransport
from rlfleet_sidecar.errors import (
    EngineError,
    EngineFailedError,
    EngineLostError,
    EngineRestartedError,
)

_CONNECT_S = 30.0
"""The kernel accepts or rejects a connection at once; a slow one means a slow machine."""
_PATIENCE_S = 1.0
"""A slower reply makes the sidecar check whether the engine still listens."""
_LOOK_S = 2.0
_TRIES = 3
"""How often a reload or a probe is sent while the engine answers 5xx."""
_RETRY_S = 0.2
_SHOWN = 300
_OURS_ALONE = {paths.PROBE_HEADER: "1"}
"""Marks the sidecar's request: it passes the gate and needs no key of vLLM's."""
_A_LOAD = {paths.LOAD_HEADER: "1"}
_KEYLESS = (
    "the engine's API key is not VLLM_API_KEY of its environment; set it in engine.extraEnv, not"
    " by --api-key or --config"
)
_OF_ONE_BOOT = frozenset({paths.GATE_PATH, paths.ENGINE_ADAPTERS_PATH})
"""Routes that return 409 to a command for another boot."""
_log = logging.getLogger(__name__)
_Model = TypeVar("_Model", bound=BaseModel)


class RelayedReply(NamedTuple):
    """An answer of the engine, forwarded unchanged."""

    status: int
    content_type: str | None
    body: bytes


class EngineClient:
    """Calls vLLM and its extension."""

    def __init__(self, url: str, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._client = httpx.AsyncClient(
            base_url=url,
            transport=transport or EngineTransport(),
            timeout=httpx.Timeout(None, connect=_CONNECT_S),
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.aclose()

    async def gate(self) -> GateState:
        """Return the boot and the state of its gate."""
        return _parsed(GateState, await self._call("GET", paths.GATE_PATH), paths.GATE_PATH)

    async def open_gate(self, boot: str, version: str | None) -> GateState:
        """Open the gate of this boot for this version."""
        return await self._command("open", boot, version=version)

    async def close_gate(
        self, boot: str, ttl_s: float | None = None, fallback: Fallback | None = None
    ) -> GateState:
        """Close the gate of this boot, with a deadline and what follows it."""
        return await self._command("close", boot, ttl_s=ttl_s, fallback=fallback)

    async def keep_gate(
        self, boot: str, ttl_s: float, fallback: Fallback | None = None
    ) -> GateState:
        """Renew the deadline of this boot's gate."""
        return await self._command("keep", boot, ttl_s=ttl_s, fallback=fallback)

    async def begin_trial(self, boot: str, version: str, ttl_s: float | None = None) -> GateState:
        """Close the gate and withhold answers until this version is proved."""
        return await self._command("try", boot, version=version, ttl_s=ttl_s)

    async def admit(self, boot: str) -> bool:
        """Let requests pass during a trial; False from an extension that cannot do that."""
        try:
            await self._command("admit", boot)
        except EngineError:
            return False
        return True

    async def end_trial(self, boot: str, *, is_proved: bool) -> GateState:
        """Send the withheld answers, or end them with an abort marker."""
        return await self._command("pass" if is_proved else "fail", boot)

    async def refuse(self, boot: str) -> GateState:
        """Close the gate and reject requests."""
        return await self._command("refuse", boot)

    async def begin_era(self, boot: str) -> GateState:
        """Hide earlier cache entries from requests without a salt."""
        return await self._command("era", boot)

    async def pause(self, mode: PauseMode, kv_cache: KVCache) -> None:
        """Pause; returns when the engine has stopped computing."""
        clear = str(kv_cache is KVCache.RESET).lower()
        await self._call("POST", "/pause", params={"mode": mode.lower(), "clear_cache": clear})

    async def resume(self) -> None:
        """Resume; has no effect on a running engine."""
        await self._call("POST", "/resume")

    async def is_paused(self) -> bool:
        """Return whether the engine is paused."""
        return (await self._call("GET", "/is_paused")).get("is_paused") is True

    async def flush(self) -> None:
        """Reset the KV and prefix cache.

        Frozen requests hold blocks, for which vLLM returns ``success: false``; so they are reset
        and compute their prefix again when they resume.
        """
        if not await self.reset_cache(reset_running=True):
            raise EngineError("/reset_prefix_cache failed: requests still hold blocks")

    async def reset_cache(self, *, reset_running: bool) -> bool:
        """Reset the KV and prefix cache; returns whether vLLM did."""
        # Without a KV connector there is no external cache, and vLLM reports success.
        query = {
            "reset_running_requests": str(reset_running).lower(),
            "reset_external": "true",
        }
        answer = await self._call("POST", "/reset_prefix_cache", params=query)
        return answer.get("success") is True

    async def reset_encoder_cache(self) -> None:
        """Clear the scheduler's list of images whose embeddings a reload drops in the ranks.

        vLLM's reload clears only the ranks; an image that the scheduler believes encoded would
        crash the engine.
        """
        await self._asked("POST", "/reset_encoder_cache")

    async def abort(self, request_ids: Sequence[str]) -> None:
        """Abort these requests, except unknown ids. Without any id vLLM would abort all."""
        await self._call("POST", "/abort_requests", json={"request_ids": list(request_ids)})

    async def world_size(self, *, include_dp: bool) -> int:
        """Return the number of ranks."""
        query = {"include_dp": str(include_dp).lower()}
        found = (await self._call("GET", "/get_world_size", params=query)).get("world_size")
        if not isinstance(found, int) or found < 1:
            raise EngineError(
                f"/get_world_size returned {found!s:.{_SHOWN}}, expected a positive integer"
            )
        return found

    async def server_info(self) -> dict[str, Any]:
        """Return the engine's resolved configuration, as vLLM reports it."""
        return await self._call("GET", "/server_info", params={"config_format": "json"})

    async def is_alive(self, timeout_s: float) -> bool:
        """Return whether the extension reports a live engine, paused or not; never raises.

        The extension answers within a second in any state of the engine, so no answer is False.
        """
        try:
            reply = await self._client.get(paths.LIVENESS_PATH, timeout=timeout_s)
        except httpx.HTTPError:
            return False
        return reply.is_success

    async def relayed(self, path: str) -> RelayedReply:
        """Return the answer of one of vLLM's routes, byte for byte."""
        try:
            headers = {"accept-encoding": "identity", **_OURS_ALONE}
            reply = await self._client.get(path, headers=headers)
        except httpx.HTTPError as error:
            raise EngineLostError(f"{path}: {type(error).__name__} {error}") from error
        return RelayedReply(reply.status_code, reply.headers.get("content-type"), reply.content)

    async def reload(
        self,
        directory: str,
        files: Sequence[FileStamp],
        timeout_s: float,
        *,
        changed: Sequence[str] = (),
        strength: float = 1.0,
    ) -> list[Installed]:
        """Load the files in every rank and return what each consumed.

        ``changed``: kinds of tensors (selftest.kind_of), moved by ``strength`` times their spread.
        """
        arguments: dict[str, object] = {
            "directory": directory,
            "files": [stamp.model_dump() for stamp in files],
        }
        if changed:
            arguments |= {"changed": list(changed), "strength": strength}
        body = {"method": paths.RELOAD_RPC, "kwargs": arguments, "timeout": timeout_s}
        answer, tries = await self._retried("/collective_rpc", body, timeout_s, headers=_A_LOAD)
        found = [_parsed(Installed, result, paths.RELOAD_RPC) for result in _results(answer)]
        if tries == 1:
            return found
        # A rank on which an earlier try succeeded compares with that try. So unchanged memory
        # proves nothing there.
        return [one.model_copy(update={"previous": None}) for one in found]

    async def preload(self, directory: str, files: Sequence[FileStamp]) -> list[Preloaded]:
        """Have every rank begin to read the files for the next reload, while it serves."""
        arguments = {"directory": directory, "files": [stamp.model_dump() for stamp in files]}
        results = await self._rpc(paths.PRELOAD_RPC, kwargs=arguments)
        return [_parsed(Preloaded, one, paths.PRELOAD_RPC) for one in results]

    async def preloaded(self) -> list[Preloaded]:
        """Return how far each rank is with that."""
        results = await self._rpc(paths.PRELOADED_RPC)
        return [_parsed(Preloaded, one, paths.PRELOADED_RPC) for one in results]

    async def describe(self, kinds: Sequence[str]) -> EngineDescription:
        """Return the engine's properties, and which of these kinds a text prompt does not use."""
        results = await self._rpc(paths.DESCRIBE_RPC, kwargs={"kinds": list(kinds)})
        return _parsed(EngineDescription, next(iter(results), None), paths.DESCRIBE_RPC)

    async def adapters(self) -> EngineAdapters:
        """Return the adapters of the engine's current boot, with their directories."""
        answer = await self._call("GET", paths.ENGINE_ADAPTERS_PATH)
        return _parsed(EngineAdapters, answer, paths.ENGINE_ADAPTERS_PATH)

    async def adapt(
        self, boot: str, name: str, directory: str | None, root: str | None = None
    ) -> EngineAdapters:
        """Load an adapter under a name in this boot; ``directory`` None unloads it.

        ``root`` is the adapter's root in /v1/models.
        """
        command = EngineAdapterCommand(boot=boot, name=name, directory=directory, root=root)
        answer = await self._call("POST", paths.ENGINE_ADAPTERS_PATH, json=command.model_dump())
        return _parsed(EngineAdapters, answer, paths.ENGINE_ADAPTERS_PATH)

    async def transfer(self, path: str, body: Mapping[str, object], *, is_load: bool) -> None:
        """Forward one call of a weight transfer."""
        await self._call("POST", path, json=dict(body), headers=_A_LOAD if is_load else {})

    async def label(self, version: str) -> None:
        """Set the version that vLLM names in its replies; no part of a proof."""
        await self._call("POST", "/update_weight_version", json={"new_version": version})

    async def read_back(self) -> list[ReadBack | None]:
        """Return the digest of each rank's memory now; None for one that cannot be read."""
        return await self._optional(ReadBack, paths.READ_BACK_RPC)

    async def reloaded(self) -> list[ReadBack | None]:
        """Return each rank's memory after the last reload, compared with what it loaded."""
        return await self._optional(ReadBack, paths.RELOADED_RPC)

    async def consumed(self) -> list[Consumed | None]:
        """Return the tensors that each rank read at boot; None where that is unknown."""
        return await self._optional(Consumed, paths.CONSUMED_RPC)

    async def complete(self, body: Mapping[str, object]) -> Mapping[str, object]:
        """Complete a prompt behind the closed gate."""
        answer, _ = await self._retried("/v1/completions", dict(body), headers=_OURS_ALONE)
        return answer

    async def end(self) -> None:
        """End the engine; the kubelet restarts it."""
        await self._call("POST", paths.EXIT_PATH)

    async def _rpc(self, method: str, **arguments: object) -> list[object]:
        """Call the worker extension on every rank."""
        body = {"method": method, **arguments}
        return _results(await self._call("POST", "/collective_rpc", json=body))

    async def _optional(self, model: type[_Model], method: str) -> list[_Model | None]:
        """Call it on every rank, of which some may have no answer."""
        found = await self._rpc(method)
        return [None if one is None else _parsed(model, one, method) for one in found]

    async def _command(self, action: GateAction, boot: str, **fields: Any) -> GateState:
        # An older extension rejects unknown fields, even with None.
        body = GateCommand(action=action, boot=boot, **fields).model_dump(exclude_none=True)
        return _parsed(
            GateState, await self._call("POST", paths.GATE_PATH, json=body), paths.GATE_PATH
        )

    async def _retried(
        self, path: str, body: dict[str, Any], limit_s: float = float("inf"), **arguments: Any
    ) -> tuple[dict[str, Any], int]:
        """Post, and retry after a 5xx, for which the version need not be the cause; count tries.

        A slow call is not retried: its error says more than a timeout would.
        """
        begun = time.monotonic()
        for tries in range(1, _TRIES):
            try:
                return await self._call("POST", path, json=body, **arguments), tries
            except EngineFailedError as error:
                if time.monotonic() - begun > limit_s / _TRIES:
                    raise
                _log.warning("Retrying the engine", extra={"path": path, "error": str(error)})
                await asyncio.sleep(_RETRY_S)
        return await self._call("POST", path, json=body, **arguments), _TRIES

    async def _call(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        reply = await self._asked(method, path, **arguments)
        try:
            parsed = reply.json()
        except ValueError as error:
            raise EngineError(f"{path} did not return JSON") from error
        if not isinstance(parsed, dict):
            raise EngineError(f"{path} did not return a JSON object")
        return parsed

    async def _asked(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            asked = self._client.request(method, path, **arguments)
            reply = await self._reply(asked)
        except httpx.HTTPError as error:
            raise EngineLostError(f"{path}: {type(error).__name__} {error}") from error
        if reply.status_code == httpx.codes.CONFLICT and path in _OF_ONE_BOOT:
            raise EngineRestartedError("the engine was restarted")
        if reply.status_code == httpx.codes.UNAUTHORIZED:
            raise EngineError(f"{path} returned 401: {_KEYLESS}")
        if not reply.is_success:
            kind = EngineFailedError if reply.is_server_error else EngineError
            raise kind(f"{path} returned {reply.status_code}: {reply.text[:_SHOWN]}")
        return reply

    async def _reply(self, request: Coroutine[Any, Any, httpx.Response]) -> httpx.Response:
        """Wait for a reply while the engine accepts connections.

        When its engine process exits, vLLM's API server stops listening, and ends only after its
        connections have closed; the sidecar's would stay open.
        """
        waiting = asyncio.create_task(request)
        try:
            while not (await asyncio.wait({waiting}, timeout=_PATIENCE_S))[0]:
                try:
                    await self._client.get(paths.GATE_PATH, timeout=_LOOK_S)
                except httpx.ConnectError:
                    raise
                except httpx.HTTPError:
                    continue  # A slow engine is not lost.
            return waiting.result()
        finally:
            waiting.cancel()
            await asyncio.wait({waiting})  # Nothing else closes its connection.


def _results(answer: Mapping[str, object]) -> list[object]:
    return found if isinstance(found := answer.get("results"), list) else []


def _parsed(model: type[_Model], answer: object, asked: str) -> _Model:
    try:
        return model.model_validate(answer)
    except ValidationError as error:
        raise EngineError(
            f"invalid answer to {asked}: {answer!s:.{_SHOWN}}, expected {model.__name__}"
        ) from error
