"""One vLLM in this process, with the worker extension, asked without HTTP."""

import gc
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import torch
from pydantic import BaseModel
from vllm import LLM, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.platforms import current_platform

from rlfleet_contract import paths
from rlfleet_contract.engine.rank_report import Consumed, Installed, Preloaded, ReadBack
from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.worker.selftest import EngineDescription
from zoo import memory

PROMPT = [5 + (place * 37) % 900 for place in range(64)]
_AFTER = 4
_SHARE = 0.05
_CACHE = 2**28
_DIGITS = 5
_EXTENSION = "rlfleet_engine.worker.ReloadExtension"
_LIKE_GPU = "zoo.like_gpu.Extension"
M = TypeVar("M", bound=BaseModel)


class Engine:
    """Boots on a checkpoint and ends with the block."""

    def __init__(self, at: Path, *, like_gpu: bool = False, **more: Any) -> None:
        self._llm = LLM(
            model=str(at),
            worker_extension_cls=_LIKE_GPU if like_gpu else _EXTENSION,
            enable_prefix_caching=False,
            load_format="safetensors",
            dtype="bfloat16",
            max_model_len=256,
            max_num_seqs=4,
            **_of_device(),
            **_pictures(at),
            **more,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._llm.llm_engine.engine_core.shutdown()
        del self._llm
        cleanup_dist_env_and_memory()
        gc.collect()

    @property
    def is_quantised(self) -> bool:
        """Whether vLLM has its weights in fewer bits, which are not read back."""
        return self._llm.llm_engine.model_config.quantization is not None

    def ask(self) -> tuple[float, ...]:
        """Return log probabilities of the prompt's tokens, and of some that follow."""
        wanted = SamplingParams(
            max_tokens=_AFTER,
            temperature=0,
            prompt_logprobs=0,
            logprobs=0,
            detokenize=False,
            ignore_eos=True,
        )
        (told,) = self._llm.generate([{"prompt_token_ids": PROMPT}], wanted, use_tqdm=False)
        entries = [*(one for one in told.prompt_logprobs if one), *told.outputs[0].logprobs]
        values = tuple(round(next(iter(one.values())).logprob, _DIGITS) for one in entries)
        if not all(map(math.isfinite, values)):
            raise ValueError("a log probability is not finite")
        return values

    def describe(self, kinds: Sequence[str]) -> EngineDescription:
        """Ask what it is."""
        return EngineDescription.model_validate(self._each(paths.DESCRIBE_RPC, list(kinds))[0])

    def consumed(self) -> list[Consumed | None]:
        """Ask each rank which tensors it read when it booted."""
        return [_parsed(Consumed, told) for told in self._each(paths.CONSUMED_RPC)]

    def reload(
        self,
        directory: Path,
        files: Sequence[FileStamp],
        changed: Sequence[str] = (),
        strength: float = 1.0,
    ) -> list[Installed]:
        """Install a checkpoint in place on each rank."""
        stamps = [stamp.model_dump() for stamp in files]
        told = self._each(paths.RELOAD_RPC, str(directory), stamps, list(changed), strength)
        return [Installed.model_validate(one) for one in told]

    def preload(self, directory: Path, files: Sequence[FileStamp]) -> int:
        """Have a checkpoint made ready for its reload; return the bytes of memory made for it."""
        self._each(paths.PRELOAD_RPC, str(directory), [stamp.model_dump() for stamp in files])
        told = self._preloaded()
        while any(one.is_reading for one in told):
            time.sleep(0.01)
            told = self._preloaded()
        return sum(one.zeroed for one in told)

    def _preloaded(self) -> list[Preloaded]:
        return [Preloaded.model_validate(one) for one in self._each(paths.PRELOADED_RPC)]

    def reloaded(self) -> list[ReadBack | None]:
        """Return each rank's memory after the last reload."""
        return [_parsed(ReadBack, told) for told in self._each(paths.RELOADED_RPC)]

    def reload_spoilt(self, directory: Path, files: Sequence[FileStamp]) -> str | None:
        """Install a checkpoint of which the last rank's memory gets one wrong value.

        Returns where, if anywhere.
        """
        self._each(memory.spoil)
        try:
            self.reload(directory, files)
        finally:
            spoilt = self._each(memory.spare)
        return next(filter(None, spoilt), None)

    def reload_by_vllm(self, directory: Path) -> None:
        """Have vLLM reload a checkpoint by itself."""
        self._each("reload_weights", None, str(directory))

    def addresses(self) -> dict[tuple[int, str], int]:
        """Return where each parameter of each rank is."""
        return self._named(memory.addresses)

    def drafter(self) -> dict[tuple[int, str], int]:
        """Return a sum of each tensor of what proposes tokens in each rank."""
        return self._named(memory.drafter)

    def model(self) -> dict[tuple[int, str], int]:
        """Return a sum of each tensor of the model in each rank."""
        return self._named(memory.model)

    def unlike_on_device(self) -> list[str]:
        """Return the parameters of which a GPU would compute another digest."""
        return [name for told in self._each(memory.unlike_on_device) for name in told]

    def _named(self, look: Callable[..., dict[str, int]]) -> dict[tuple[int, str], int]:
        """Return what each rank found, by rank and name."""
        told = enumerate(self._each(look))
        return {(rank, name): one for rank, found in told for name, one in found.items()}

    def _each(self, method: str | Callable[..., Any], *arguments: object) -> list[Any]:
        with torch.inference_mode():
            return list(self._llm.collective_rpc(method, args=arguments))


def _parsed(model: type[M], told: object) -> M | None:
    return None if told is None else model.model_validate(told)


def _of_device() -> dict[str, Any]:
    """On a GPU, capture graphs, which hold the addresses of weights, and leave room for others."""
    if not current_platform.is_cuda():
        return {"enforce_eager": True}
    return {
        "compilation_config": {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"},
        "gpu_memory_utilization": _SHARE,
        "kv_cache_memory_bytes": _CACHE,
    }


def _pictures(at: Path) -> dict[str, Any]:
    """Let a multimodal model load its tower, and try out no picture when it boots."""
    is_multimodal = (at / "tokenizer.json").exists()
    return {"skip_tokenizer_init": not is_multimodal} | (
        {"skip_mm_profiling": True} if is_multimodal else {}
    )


def far(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the largest difference of two answers."""
    return round(max(abs(a - b) for a, b in zip(one, other, strict=True)), _DIGITS)
