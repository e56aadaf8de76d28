"""The part of vLLM's resolved configuration that trainers may read (GET /server_info). Pure.

TRL reads the dtype, the mode of log probabilities, LoRA's limits, data parallelism and whether
there is a transfer engine. vLLM also returns its environment, arguments and paths, which must
not leave the pod. So only the fields below are forwarded.
"""

from collections.abc import Mapping
from typing import Any

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
