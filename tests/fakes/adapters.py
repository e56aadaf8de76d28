"""vLLM's serving objects, as far as adapters are concerned, and adapters on disk.

Imitates OpenAIServingModels 0.32: what is refused, and in which words; that an unload
forgets a name in the API server alone; that names are unique unless a load is in place.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rlfleet_contract import paths
from tests.fakes.checkpoints import HIDDEN, MARKER, write_file

BASE = "fake"
MAX_RANK = 8
_OUT = {"q_proj": HIDDEN, "up_proj": 16}
_BLOCK = {"q_proj": "self_attn", "up_proj": "mlp"}


@dataclass(slots=True)
class LoRARequest:
    """As vLLM's: a mutable struct that requests hold on to."""

    lora_name: str
    lora_int_id: int
    lora_path: str
    load_inplace: bool = False
    content: str = ""
    """What the engine computes with."""


class ServingModels:
    """One start's OpenAIServingModels."""

    def __init__(self, load_s: Callable[[], float], is_enabled: Callable[[], bool]) -> None:
        self.lora_requests: dict[str, LoRARequest] = {}
        self.lora_resolver_lock: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.loads = 0
        self.base = BASE
        """What the engine serves the model as."""
        self.load_s = load_s
        self._is_enabled = is_enabled
        """Whether --enable-lora was given."""
        self._ids = count(1)
        self.targets: Collection[str] | None = None
        """What --lora-target-modules names; None: all modules."""
        self._paths: dict[int, Path] = {}

    @property
    def engine_client(self) -> "ServingModels":
        return self

    async def collective_rpc(self, method: str, args: tuple[int, ...]) -> list[list[str]]:
        """Return what each rank leaves out of an adapter; the second lacks the first's layer."""
        assert method == paths.LEFT_OUT_RPC
        names = _modules(self._paths[args[0]])
        lost = [name for name in names if self.targets and not name.endswith(tuple(self.targets))]
        return [lost, [*lost, *(name for name in names if "layers.0." in name)]]

    def model_name(self, lora_request: LoRARequest | None = None) -> str:
        return self.base if lora_request is None else lora_request.lora_name

    async def show_available_models(self) -> Any:
        cards = [SimpleNamespace(id=self.base, root=None, parent=None)]
        cards += [
            SimpleNamespace(id=request.lora_name, root=request.lora_path, parent=self.base)
            for request in self.lora_requests.values()
        ]
        return SimpleNamespace(data=cards)

    def refusal(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return vLLM's error for a request with an unknown model, or None."""
        name = body.get("model") or self.base
        if self.is_base_model(name) or name in self.lora_requests:
            return None
        message = f"The model `{name}` does not exist. Valid aliases: {self.base}."
        return {"error": {"message": message, "code": 404}}

    def is_base_model(self, name: str) -> bool:
        return name == self.base

    async def load_lora_adapter(self, request: Any) -> Any:
        async with self.lora_resolver_lock[request.lora_name]:
            if self.is_base_model(request.lora_name):
                return _error(400, f"The lora adapter '{request.lora_name}' conflicts with a"
                              " served base model.")  # fmt: skip
            if request.lora_name in self.lora_requests and not request.load_inplace:
                return _error(
                    400, f"The lora adapter '{request.lora_name}' has already been loaded."
                )
            self.loads += 1
            await asyncio.sleep(self.load_s())
            try:
                content = self._loaded(Path(request.lora_path))
            except ValueError as error:
                return _error(500, str(error))
            name, number = request.lora_name, next(self._ids)
            self._paths[number] = Path(request.lora_path)
            self.lora_requests[name] = LoRARequest(
                name, number, request.lora_path, request.load_inplace, content
            )
            return f"Success: LoRA adapter '{name}' added successfully."

    async def unload_lora_adapter(self, request: Any) -> Any:
        async with self.lora_resolver_lock[request.lora_name]:
            if request.lora_name not in self.lora_requests:
                return _error(404, f"The lora adapter '{request.lora_name}' cannot be found.")
            del self.lora_requests[request.lora_name]
            return f"Success: LoRA adapter '{request.lora_name}' removed successfully."

    def _loaded(self, directory: Path) -> str:
        if not self._is_enabled():
            raise ValueError("LoRA is not enabled. Use --enable-lora to enable LoRA.")
        rank = json.loads((directory / "adapter_config.json").read_text())["r"]
        if rank > MAX_RANK:
            raise ValueError(f"LoRA rank {rank} is greater than max_lora_rank {MAX_RANK}.")
        return sha256((directory / "adapter_model.safetensors").read_bytes()).hexdigest()[:12]


class Batch:
    """The adapters that are computed with at this moment, as vLLM's workers know them."""

    def __init__(self) -> None:
        self._running: list[LoRARequest] = []

    @contextmanager
    def with_one(self, adapter: LoRARequest | None) -> Iterator[None]:
        """Count a request in; two adapters of one name in a batch end vLLM's engine."""
        if adapter is None:
            yield
            return
        self._running.append(adapter)
        ids = {one.lora_int_id for one in self._running}
        names = {one.lora_name for one in self._running}
        if len(ids) != len(names):
            raise AssertionError(f"the engine has died of two adapters of one name: {names}")
        try:
            yield
        finally:
            self._running.remove(adapter)


async def cards(models: ServingModels) -> list[dict[str, Any]]:
    """Return the reply to GET /v1/models."""
    listed = (await models.show_available_models()).data
    return [{k: v for k, v in vars(card).items() if v is not None} for card in listed]


def write_adapter(
    directory: Path,
    seed: int,
    *,
    rank: int = 4,
    modules: Sequence[str] = ("q_proj", "up_proj"),
    prefix: str = "base_model.model.",
    **fields: object,
) -> Path:
    """Write a complete adapter for the model of checkpoints.py, the marker last."""
    directory.mkdir(parents=True, exist_ok=True)
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in range(2):
        for module in modules:
            path = f"{prefix}model.layers.{layer}.{_BLOCK[module]}.{module}"
            shapes[f"{path}.lora_A.weight"] = (rank, HIDDEN)
            shapes[f"{path}.lora_B.weight"] = (_OUT[module], rank)
    write_file(directory / "adapter_model.safetensors", shapes, seed)
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": "fake",
        "r": rank,
        "lora_alpha": 8,
        "target_modules": list(modules),
        "bias": "none",
        "task_type": "CAUSAL_LM",
    }
    (directory / "adapter_config.json").write_text(json.dumps(config | fields))
    (directory / MARKER).touch()
    return directory


def _modules(directory: Path) -> list[str]:
    """Return the names of an adapter's modules, as vLLM has them."""
    data = (directory / "adapter_model.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    names = (name.removeprefix("base_model.model.") for name in header if ".lora_A." in name)
    return sorted(name.partition(".lora_A.")[0] for name in names)


def _error(code: int, message: str) -> Any:
    return SimpleNamespace(error=SimpleNamespace(code=code, message=message))
