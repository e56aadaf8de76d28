"""Trainers' questions about the engine, without an effect on it."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from rlfleet_contract import paths
from rlfleet_contract.worker.dynamo import Discovered, Discovery, instance_of
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.dialects.retry import patiently
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.http.problems import MODELS_PATH
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.state.journal import Journal
from rlfleet_sidecar.timeouts import within
from rlfleet_sidecar.vllm_client import EngineClient, RelayedReply

FORWARDED: Mapping[str, frozenset[str]] = {
    "model_config": frozenset(
        {
            "served_model_name",
            "dtype",
            "max_model_len",
            "max_logprobs",
            "logprobs_mode",
            "quantization",
        }
    ),
    "parallel_config": frozenset(
        {"tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"}
    ),
    "lora_config": frozenset({"max_lora_rank", "max_loras", "max_cpu_loras", "lora_dtype"}),
    "cache_config": frozenset({"block_size", "cache_dtype", "enable_prefix_caching"}),
    "scheduler_config": frozenset({"max_num_seqs", "max_num_batched_tokens"}),
    "weight_transfer_config": frozenset({"backend"}),
}
"""Sections of vLLM's configuration with the forwarded fields; null for a missing section."""


def forwarded_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the forwarded part of vLLM's answer, in its form."""
    config = found.get("vllm_config")
    sections = config if isinstance(config, dict) else {}
    kept = {name: _picked(sections.get(name), fields) for name, fields in FORWARDED.items()}
    return {"vllm_config": kept, "vllm_env": {}, "system_env": {}}


def _picked(section: object, fields: frozenset[str]) -> dict[str, Any] | None:
    if not isinstance(section, dict):
        return None
    return {name: value for name, value in section.items() if name in fields}


_LOOK_S = 4.0
"""Shorter than prime-rl waits for /metrics, 5 s."""
_ALIVE_S = 2.0
"""The extension answers within one."""
_NAMESPACE, _COMPONENT = "rlfleet", "worker"
"""Dynamo's names for a worker; its clients need some value."""


class EngineQueries:
    """Asks the engine; each question has a timeout, because its core may hang."""

    def __init__(self, settings: SidecarSettings, engine: EngineClient, journal: Journal) -> None:
        self._settings = settings
        self._engine = engine
        self._journal = journal

    async def world_size(self, *, include_dp: bool = True) -> int:
        """Return the number of ranks."""
        async with within(Code.ENGINE_UNREACHABLE, _LOOK_S):
            return await self._engine.world_size(include_dp=include_dp)

    async def is_alive(self) -> bool:
        """Return whether the engine answers; a paused or reloading one does."""
        return self._journal.state.stage is not Stage.DOWN and await self._engine.is_alive(_ALIVE_S)

    async def demand_alive(self) -> None:
        """Raise unless the engine answers."""
        if not await self.is_alive():
            raise SidecarError(
                Code.ENGINE_UNREACHABLE,
                f"the engine did not answer within {_ALIVE_S:g} s; retry when it is up",
            )

    async def relayed(self, path: str) -> RelayedReply:
        """Return the engine's answer, unchanged."""
        async with within(Code.ENGINE_UNREACHABLE, _LOOK_S):
            return await self._engine.relayed(path)

    async def server_info(self) -> dict[str, Any]:
        """Return what trainers may read of the engine's configuration; waits as ``models`` does.

        For its first reply vLLM examines its environment, which starts some 20 programs. TRL asks
        once, and exits after an error.
        """
        up_s = self._settings.trainer_up_s
        return await patiently(
            lambda: self._server_info(max(up_s, _LOOK_S)), {Code.ENGINE_UNREACHABLE: up_s}
        )

    async def _server_info(self, timeout_s: float) -> dict[str, Any]:
        # A repeat would have vLLM examine its environment once more, so one call has all the time.
        async with within(Code.ENGINE_UNREACHABLE, timeout_s):
            return forwarded_of(await self._engine.server_info())

    async def models(self) -> RelayedReply:
        """Return the engine's list of models; waits for an engine that is down.

        Some clients ask once, and accept any answer.
        """
        return await patiently(
            lambda: self.relayed(MODELS_PATH),
            {Code.ENGINE_UNREACHABLE: self._settings.trainer_up_s},
        )

    async def discovered(self, host: str) -> Discovery:
        """Return this worker in Dynamo's form, with the host of the request."""
        try:
            ranks, why = await self.world_size(), None
        except SidecarError as error:
            ranks, why = None, error.message
        settings = self._settings
        own = f"{'http' if settings.tls_dir is None else 'https'}://{host}"
        found = Discovered(
            namespace=_NAMESPACE,
            component=_COMPONENT,
            instance_id=instance_of(settings.pod_uid),
            request_plane_url=f"http://{_name_in(host)}:{_port_of(settings.engine_url)}",
            system_url=own,
            admin_base_url=own,
            model=settings.model_name,
            world_size=ranks,
            error=why,
        )
        return Discovery(namespace=_NAMESPACE, workers=[found])


def _name_in(host: str) -> str:
    """Return a host without its port, in the form of a URL."""
    name = urlsplit(f"//{host}").hostname or ""
    return f"[{name}]" if ":" in name else name


def _port_of(url: str) -> int:
    return urlsplit(url).port or paths.ENGINE_PORT
