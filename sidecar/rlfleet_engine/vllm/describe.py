"""Says what an engine is, as far as its reload depends on it."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import vllm

from rlfleet_contract.worker.selftest import EngineDescription
from rlfleet_engine.vllm import sendable
from rlfleet_engine.vllm.releases import is_tested


def described(worker: Any, kinds: Sequence[str]) -> EngineDescription:
    """Describe one rank; ``kinds`` are the kinds of tensors of its base model."""
    config = worker.vllm_config
    ranks = config.parallel_config
    architectures = tuple(config.model_config.hf_config.architectures or ())
    parts = (
        vllm.__version__,
        worker.device.type,
        config.compute_hash(),
        config.model_config.dtype,
        ranks.tensor_parallel_size,
        ranks.pipeline_parallel_size,
    )
    return EngineDescription(
        release=vllm.__version__,
        is_tested=is_tested(vllm.__version__),
        device=worker.device.type,
        architectures=architectures,
        fingerprint=sha256(" ".join(map(str, parts)).encode()).hexdigest()[:32],
        unreached=tuple(unreached(worker.get_model(), kinds)),
        unsendable=sendable.objection(worker.device.type, architectures),
    )


def unreached(model: Any, kinds: Sequence[str]) -> list[str]:
    """Return the kinds that lie in a part which a prompt of text does not pass through.

    vLLM names the parts of a multimodal model by the prefixes of its own modules.
    """
    told = getattr(model, "get_mm_mapping", None)
    if told is None:
        return []
    parts = told()
    beside = (*_prefixes(parts.connector), *_prefixes(parts.tower_model))
    return [kind for kind in kinds if _in_vllm(model, kind).startswith(beside)]


def _prefixes(told: Any) -> tuple[str, ...]:
    return (told,) if isinstance(told, str) else tuple(told or ())


def _in_vllm(model: Any, name: str) -> str:
    mapper = getattr(model, "hf_to_vllm_mapper", None)
    return name if mapper is None else next(iter(mapper.apply_list([name])), name)
