"""One vLLM in this process, with the worker extension, asked without HTTP."""

import gc
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from vllm import LLM, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory

from rlfleet_contract import paths
from rlfleet_contract.engine.rank_report import Consumed, Installed, Preloaded, ReadBack
from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.worker.selftest import EngineDescription
from rlfleet_engine.vllm.reload import load
from zoo import memory

PROMPT = [5 + (place * 37) % 900 for place in range(64)]
_AFTER = 4
_DIGITS = 5


class Engine:
    """Boots on a checkpoint and ends with the block."""

    def __init__(self, at: Path, **more: Any) -> None:
        self._llm = LLM(
            model=str(at),
            worker_extension_cls="rlfleet_engine.worker.ReloadExtension",
            enforce_eager=True,
            enable_prefix_caching=False,
            load_format="safetensors",
            dtype="bfloat16",
            max_model_len=256,
            max_num_seqs=4,
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
        return EngineDescription.model_validate(self._rpc(paths.DESCRIBE_RPC, list(kinds)))

    def consumed(self) -> Consumed | None:
        """Ask which tensors it read when it booted."""
        told = self._rpc(paths.CONSUMED_RPC)
        return None if told is None else Consumed.model_validate(told)

    def reload(
        self,
        directory: Path,
        files: Sequence[FileStamp],
        changed: Sequence[str] = (),
        strength: float = 1.0,
    ) -> Installed:
        """Install a checkpoint in place."""
        stamps = [stamp.model_dump() for stamp in files]
        return Installed.model_validate(
            self._rpc(paths.RELOAD_RPC, str(directory), stamps, list(changed), strength)
        )

    def preload(self, directory: Path, files: Sequence[FileStamp]) -> Preloaded:
        """Have a checkpoint, and memory for it, made ready for its reload."""
        self._rpc(paths.PRELOAD_RPC, str(directory), [stamp.model_dump() for stamp in files])
        while (told := Preloaded.model_validate(self._rpc(paths.PRELOADED_RPC))).is_reading:
            time.sleep(0.01)
        return told

    def reloaded(self) -> ReadBack | None:
        """Return the memory after the last reload."""
        told = self._rpc(paths.RELOADED_RPC)
        return None if told is None else ReadBack.model_validate(told)

    def reload_spoilt(self, directory: Path, files: Sequence[FileStamp]) -> str | None:
        """Install a checkpoint of which memory gets one wrong value; return where, if anywhere."""
        loads = load.load
        load.load = spoiling = memory.Spoiling(loads)
        try:
            self.reload(directory, files)
        finally:
            load.load = loads
        return spoiling.spoilt

    def reload_by_vllm(self, directory: Path) -> None:
        """Have vLLM reload a checkpoint by itself."""
        self._rpc("reload_weights", None, str(directory))

    def addresses(self) -> dict[str, int]:
        """Return where each parameter is."""
        return dict(self._rpc(memory.addresses))

    def unlike_on_device(self) -> list[str]:
        """Return the parameters of which a GPU would compute another digest."""
        return list(self._rpc(memory.unlike_on_device))

    def _rpc(self, method: str | Callable[..., Any], *arguments: object) -> Any:
        with torch.inference_mode():
            return self._llm.collective_rpc(method, args=arguments)[0]


def _pictures(at: Path) -> dict[str, Any]:
    """Let a multimodal model load its tower, and try out no picture when it boots."""
    is_multimodal = (at / "tokenizer.json").exists()
    return {"skip_tokenizer_init": not is_multimodal} | (
        {"skip_mm_profiling": True} if is_multimodal else {}
    )


def far(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the largest difference of two answers."""
    return round(max(abs(a - b) for a, b in zip(one, other, strict=True)), _DIGITS)
