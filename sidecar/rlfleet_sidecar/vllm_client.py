"""The one vLLM beside this sidecar, over loopback: a short fixed list of calls.

httpx's errors stop here. An answer that is not the wanted one is an EngineError, no
answer is an EngineLostError. There are no timeouts but for connecting: whoever calls
knows how long a step may take and cancels.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

import httpx
from pydantic import ValidationError

from rlfleet_contract import paths
from rlfleet_contract.engine.gate import Fallback, GateCommand, GateState
from rlfleet_contract.engine.rank_report import Consumed, Installed, ReadBack
from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.worker.commands import KVCache, PauseMode
from rlfleet_contract.worker.loaded_lora import EngineAdapterCommand, EngineAdapters
from rlfleet_contract.worker.selftest import EngineDescription
from rlfleet_sidecar.errors import (
    EngineError,
    EngineFailedError,
    EngineLostError,
    EngineRestartedError,
)

_CONNECT_S = 30.0
"""The kernel takes a connection for whoever listens, and refuses one at once for nobody: one
that takes long tells of a machine that stands still, and not of an engine that is gone."""
_PATIENCE_S = 1.0
"""A reply that takes longer makes us look whether anybody is there at all."""
_LOOK_S = 2.0
_LIMITS = httpx.Limits(max_connections=8, keepalive_expiry=2.0)
"""vLLM closes idle connections after 5 s; one that it is about to close must not be used."""
_TRIES = 3
"""How often a reload or a probe is sent that the engine answers with an error of its own."""
_RETRY_S = 0.2
_TOLD_CHARACTERS = 300
_OURS = frozenset(
    {paths.GATE_PATH, paths.ENGINE_ADAPTERS_PATH, paths.EXIT_PATH, paths.LIVENESS_PATH}
)
_OURS_ALONE = {paths.PROBE_HEADER: "1"}
"""Shows a request to the extension as the sidecar's: it passes the gate and any key of vLLM's."""
_KEYLESS = (
    "the engine wants a key that is not VLLM_API_KEY of its environment: name its key there alone,"
    " in engine.extraEnv, and not by --api-key or in a file of --config"
)
_OF_ONE_BOOT = frozenset({paths.GATE_PATH, paths.ENGINE_ADAPTERS_PATH})
"""Routes that answer 409 to a command for another start of the engine."""
_log = logging.getLogger(__name__)


class Relayed(NamedTuple):
    """An answer of the engine's that is passed on as it came."""

    status: int
    content_type: str | None
    body: bytes


class Engine:
    """Speaks to vLLM and to our extension inside it."""

    def __init__(self, url: str, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._client = httpx.AsyncClient(
            base_url=url,
            transport=transport
            or httpx.AsyncHTTPTransport(verify=False, trust_env=False, limits=_LIMITS),
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
        """Tell which boot answers and how its gate stands."""
        return _gate_state(await self._call("GET", paths.GATE_PATH))

    async def open_gate(self, boot: str, version: str | None) -> GateState:
        """Open the gate of exactly this boot, over this version."""
        return await self._command(GateCommand(action="open", boot=boot, version=version))

    async def close_gate(
        self, boot: str, ttl_s: float | None = None, fallback: Fallback | None = None
    ) -> GateState:
        """Close the gate of exactly this boot, with what it does if it is not kept."""
        return await self._command(
            GateCommand(action="close", boot=boot, ttl_s=ttl_s, fallback=fallback)
        )

    async def keep_gate(
        self, boot: str, ttl_s: float, fallback: Fallback | None = None
    ) -> GateState:
        """Put off the deadline of this boot's gate."""
        return await self._command(
            GateCommand(action="keep", boot=boot, ttl_s=ttl_s, fallback=fallback)
        )

    async def begin_trial(self, boot: str, version: str, ttl_s: float | None = None) -> GateState:
        """Close the gate over a version that is to be proved; answers are withheld."""
        return await self._command(
            GateCommand(action="try", boot=boot, version=version, ttl_s=ttl_s)
        )

    async def end_trial(self, boot: str, *, is_proved: bool) -> GateState:
        """Let out what was withheld, as it is or with the marker of an abort."""
        action: Literal["pass", "fail"] = "pass" if is_proved else "fail"
        return await self._command(GateCommand(action=action, boot=boot))

    async def refuse(self, boot: str) -> GateState:
        """Close the gate, and have requests told to go elsewhere."""
        return await self._command(GateCommand(action="refuse", boot=boot))

    async def begin_era(self, boot: str) -> GateState:
        """Have requests without a salt find nothing of what was computed before."""
        return await self._command(GateCommand(action="era", boot=boot))

    async def pause(self, mode: PauseMode, kv_cache: KVCache) -> None:
        """Pause; returns when nothing is being computed any more."""
        clear = str(kv_cache is KVCache.RESET).lower()
        await self._call("POST", "/pause", params={"mode": mode.lower(), "clear_cache": clear})

    async def resume(self) -> None:
        """Let the engine run; harmless if it does."""
        await self._call("POST", "/resume")

    async def is_paused(self) -> bool:
        """Tell whether the engine is paused."""
        return (await self._call("GET", "/is_paused")).get("is_paused") is True

    async def flush(self) -> None:
        """Reset the KV and prefix cache.

        Frozen requests hold blocks and vLLM says ``success: false``; so they are made
        to compute their prefix anew when they go on.
        """
        if not await self.reset_cache(reset_running=True):
            raise EngineError("/reset_prefix_cache did not succeed: blocks are still held")

    async def reset_cache(self, *, reset_running: bool) -> bool:
        """Reset the KV and prefix cache; tells whether vLLM did."""
        # Without a connector there is nothing outside, and vLLM says that it succeeded.
        query = {
            "reset_running_requests": str(reset_running).lower(),
            "reset_external": "true",
        }
        answer = await self._call("POST", "/reset_prefix_cache", params=query)
        return answer.get("success") is True

    async def reset_encoder_cache(self) -> None:
        """Have the scheduler forget the images whose embeddings a reload drops in the ranks.

        vLLM's reload empties the ranks' part alone; an image that the scheduler takes for
        encoded then ends the engine.
        """
        await self._asked("POST", "/reset_encoder_cache")

    async def abort(self, request_ids: Sequence[str]) -> None:
        """End these requests; an id that it does not know is passed over.

        There must be one: without any vLLM ends them all.
        """
        await self._call("POST", "/abort_requests", json={"request_ids": list(request_ids)})

    async def world_size(self, *, include_dp: bool) -> int:
        """Tell how many ranks the engine has."""
        query = {"include_dp": str(include_dp).lower()}
        found = (await self._call("GET", "/get_world_size", params=query)).get("world_size")
        if not isinstance(found, int) or found < 1:
            raise EngineError(f"/get_world_size told {found!s:.{_TOLD_CHARACTERS}}")
        return found

    async def server_info(self) -> dict[str, Any]:
        """Return the engine's resolved configuration and all else that vLLM tells of itself."""
        return await self._call("GET", "/server_info", params={"config_format": "json"})

    async def is_alive(self, timeout_s: float) -> bool:
        """Tell whether the extension says that the engine answers, paused or not; never raises.

        It answers within a second, whatever the engine does, so silence is no sign of life.
        """
        try:
            reply = await self._client.get(paths.LIVENESS_PATH, timeout=timeout_s)
        except httpx.HTTPError:
            return False
        return reply.is_success

    async def relayed(self, path: str) -> Relayed:
        """Ask one of the engine's own routes and return its answer byte for byte."""
        try:
            headers = {"accept-encoding": "identity", **_OURS_ALONE, **_headers(path)}
            reply = await self._client.get(path, headers=headers)
        except httpx.HTTPError as error:
            raise EngineLostError(f"{path}: {type(error).__name__} {error}") from error
        return Relayed(reply.status_code, reply.headers.get("content-type"), reply.content)

    async def reload(
        self,
        directory: str,
        files: Sequence[FileStamp],
        timeout_s: float,
        *,
        changed: str | None = None,
        strength: float = 1.0,
    ) -> list[Installed]:
        """Install the files in every rank and tell what each consumed.

        ``changed``: a kind of tensors (selftest.kind_of) that is installed with other values,
        ``strength`` times their own spread away.
        """
        arguments: dict[str, object] = {
            "directory": directory,
            "files": [stamp.model_dump() for stamp in files],
        }
        if changed is not None:
            arguments |= {"changed": changed, "strength": strength}
        body = {"method": paths.RELOAD_RPC, "kwargs": arguments, "timeout": timeout_s}
        answer, tries = await self._retried("/collective_rpc", body, timeout_s)
        results = _results(answer)
        try:
            found = [Installed.model_validate(result) for result in results]
        except ValidationError as error:
            raise EngineError(f"the reload told {results!s:.{_TOLD_CHARACTERS}}") from error
        if tries == 1:
            return found
        # A rank on which the try before went well compares with that try, and not with what
        # it held: nothing follows from its memory's having stayed.
        return [one.model_copy(update={"previous": None}) for one in found]

    async def describe(self, kinds: Sequence[str]) -> EngineDescription:
        """Return what the engine is, and which kinds of tensors a prompt does not reach."""
        results = await self._rpc(paths.DESCRIBE_RPC, kwargs={"kinds": list(kinds)})
        try:
            return EngineDescription.model_validate(results[0])
        except (IndexError, ValidationError) as error:
            raise EngineError(f"the engine described itself as {results!s:.100}") from error

    async def adapters(self) -> EngineAdapters:
        """Tell which adapters this start of the engine serves, and from where."""
        return _adapters(await self._call("GET", paths.ENGINE_ADAPTERS_PATH))

    async def adapt(
        self, boot: str, name: str, directory: str | None, root: str | None = None
    ) -> EngineAdapters:
        """Have exactly this boot serve an adapter under a name; None: no more.

        ``root`` is what the engine tells its clients of where the adapter lies.
        """
        command = EngineAdapterCommand(boot=boot, name=name, directory=directory, root=root)
        body = command.model_dump()
        return _adapters(await self._call("POST", paths.ENGINE_ADAPTERS_PATH, json=body))

    async def transfer(self, path: str, body: Mapping[str, object]) -> None:
        """Send one call of a weight transfer on, which every rank takes part in."""
        await self._call("POST", path, json=dict(body))

    async def label(self, version: str) -> None:
        """Have the engine name the version in the spans of its replies; it proves nothing."""
        await self._call("POST", "/update_weight_version", json={"new_version": version})

    async def read_back(self) -> list[ReadBack | None]:
        """Tell what stands in each rank's memory; None for one that cannot be read."""
        results = await self._rpc(paths.READ_BACK_RPC)
        try:
            return [None if one is None else ReadBack.model_validate(one) for one in results]
        except ValidationError as error:
            raise EngineError(f"reading back told {results!s:.{_TOLD_CHARACTERS}}") from error

    async def consumed(self) -> list[Consumed | None]:
        """Tell what each rank's load read when this engine booted; None where that is unknown."""
        results = await self._rpc(paths.CONSUMED_RPC)
        try:
            return [None if one is None else Consumed.model_validate(one) for one in results]
        except ValidationError as error:
            raise EngineError(f"the boot's load told {results!s:.{_TOLD_CHARACTERS}}") from error

    async def complete(self, body: Mapping[str, object]) -> Mapping[str, object]:
        """Complete a prompt behind the closed gate."""
        answer, _ = await self._retried("/v1/completions", dict(body), headers=_OURS_ALONE)
        return answer

    async def end(self) -> None:
        """End the engine; the kubelet starts it anew."""
        await self._call("POST", paths.EXIT_PATH)

    async def _rpc(self, method: str, **arguments: object) -> list[object]:
        """Call the worker extension on every rank."""
        body = {"method": method, **arguments}
        return _results(await self._call("POST", "/collective_rpc", json=body))

    async def _command(self, command: GateCommand) -> GateState:
        # An older extension refuses a field that it does not know, None too.
        body = command.model_dump(exclude_none=True)
        return _gate_state(await self._call("POST", paths.GATE_PATH, json=body))

    async def _retried(
        self, path: str, body: dict[str, Any], limit_s: float = float("inf"), **arguments: Any
    ) -> tuple[dict[str, Any], int]:
        """Post what may be sent again, and count the tries: one 5xx condemns no version.

        What took long is not sent again: its own words say more than a timeout.
        """
        begun = time.monotonic()
        for tries in range(1, _TRIES):
            try:
                return await self._call("POST", path, json=body, **arguments), tries
            except EngineFailedError as error:
                if time.monotonic() - begun > limit_s / _TRIES:
                    raise
                _log.warning("The engine is asked again", extra={"error": str(error)})
                await asyncio.sleep(_RETRY_S)
        return await self._call("POST", path, json=body, **arguments), _TRIES

    async def _call(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        reply = await self._asked(method, path, **arguments)
        try:
            parsed = reply.json()
        except ValueError as error:
            raise EngineError(f"{path} answered no JSON") from error
        if not isinstance(parsed, dict):
            raise EngineError(f"{path} answered no JSON object")
        return parsed

    async def _asked(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        headers = {**arguments.pop("headers", {}), **_headers(path)}
        try:
            asked = self._client.request(method, path, headers=headers, **arguments)
            reply = await self._reply(asked)
        except httpx.HTTPError as error:
            raise EngineLostError(f"{path}: {type(error).__name__} {error}") from error
        if reply.status_code == httpx.codes.CONFLICT and path in _OF_ONE_BOOT:
            raise EngineRestartedError("the engine was restarted")
        if reply.status_code == httpx.codes.UNAUTHORIZED:
            raise EngineError(f"{path} answered 401: {_KEYLESS}")
        if not reply.is_success:
            told = reply.text[:_TOLD_CHARACTERS]
            kind = EngineFailedError if reply.is_server_error else EngineError
            raise kind(f"{path} answered {reply.status_code}: {told}")
        return reply

    async def _reply(self, request: Coroutine[Any, Any, httpx.Response]) -> httpx.Response:
        """Wait for a reply as long as the engine accepts connections.

        When its engine process dies, vLLM's API server stops listening and waits for its
        connections to close before it ends; ours, waiting for a reply, would be one.
        """
        waiting = asyncio.create_task(request)
        try:
            while not (await asyncio.wait({waiting}, timeout=_PATIENCE_S))[0]:
                try:
                    await self._client.get(paths.GATE_PATH, timeout=_LOOK_S)
                except httpx.ConnectError:
                    raise
                except httpx.HTTPError:
                    continue  # Slow is not lost.
            return waiting.result()
        finally:
            waiting.cancel()
            await asyncio.wait({waiting})  # Nothing else closes its connection.


def _headers(path: str) -> dict[str, str]:
    """Give each call of vLLM's own routes a connection of its own; ours do not raise.

    A handler of vLLM's that raises is answered for with a 500, and then the connection is
    closed without a word in that answer: a request sent on it at once would be lost.
    """
    return {} if path in _OURS else {"connection": "close"}


def _results(answer: Mapping[str, object]) -> list[object]:
    return found if isinstance(found := answer.get("results"), list) else []


def _adapters(answer: Mapping[str, object]) -> EngineAdapters:
    try:
        return EngineAdapters.model_validate(answer)
    except ValidationError as error:
        raise EngineError("the answer does not tell the engine's adapters") from error


def _gate_state(answer: Mapping[str, object]) -> GateState:
    try:
        return GateState.model_validate(answer)
    except ValidationError as error:
        raise EngineError("the gate's answer is not a GateState") from error
