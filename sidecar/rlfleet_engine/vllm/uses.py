"""The table of vLLM's names that rlfleet uses, with the effect if one is missing.

`make matrix` looks up each name in a release's files, even of a release that cannot run here, and
shows missing ones and changed parameters in docs/reference/compatibility.md. Every name that this
package imports, and every route that the sidecar calls, must be in the table; a test compares.
"""

import re
from typing import NamedTuple

ROUTE, STATE, FLAG, VARIABLE = "route", "app.state", "flag", "variable"

SPANS = "weight_versions"
"""The field of /inference/v1/generate with the version of each range of tokens."""


class Use(NamedTuple):
    """A name, its place (a module, or a constant above), and the parameters that rlfleet passes."""

    place: str
    name: str
    takes: tuple[str, ...] = ()
    since: tuple[int, ...] = ()
    """The first release with it, if rlfleet also works without it."""

    def __str__(self) -> str:
        """Return the name for people."""
        if self.place in {ROUTE, FLAG, VARIABLE}:
            return self.name
        return f"{self.place}.{self.name}"


_PAUSE = ("mode", "clear_cache")
_MODEL = "vllm.model_executor"
_LAYERS = f"{_MODEL}.layers"
_LOADER = f"{_MODEL}.model_loader"
_LAYERWISE = f"{_LOADER}.reload.layerwise"
_RUNNER = "vllm.v1.worker.gpu_model_runner"
_RUNNER_2 = "vllm.v1.worker.gpu.model_runner"
"""Model Runner V2, the default on GPUs. No test has run it, because it needs Triton."""
_GENERATE = "vllm.entrypoints.scale_out.token_in_token_out"
_SERVING = "vllm.entrypoints.openai.models.serving"
_LORA = "vllm.lora.model_manager"
_EXPERTS = f"{_LAYERS}.fused_moe.routed_experts"
_MAPPER = f"{_MODEL}.models.utils"
_INTERFACES = f"{_MODEL}.models.interfaces"
_REGISTRY = f"{_MODEL}.models.registry"

USES: dict[str, tuple[Use, ...]] = {
    "The worker does not start": (
        # vllm/serve.py runs this module, which 0.32 calls deprecated.
        Use("vllm.entrypoints.openai.api_server", "run_server"),
        Use(FLAG, "--worker-extension-cls"),
        Use(FLAG, "--middleware"),
        Use(FLAG, "--load-format"),
        Use(FLAG, "--tensor-parallel-size"),
        Use(FLAG, "--served-model-name"),
        Use(FLAG, "--disable-uvicorn-access-log"),
        # Without it the routes that take and give token ids are open in 0.29.
        Use(FLAG, "--enable-scale-out", since=(0, 30)),
        Use("vllm.config", "set_current_vllm_config", ("vllm_config",)),
        Use("vllm.v1.worker.gpu_worker", "Worker.get_model"),
        Use(_RUNNER_2, "GPUModelRunner.get_model"),
    ),
    "A start takes one more import of vLLM": (
        Use(_REGISTRY, "ModelRegistry"),
        Use(_REGISTRY, "_LazyRegisteredModel.inspect_model_cls"),
        Use(_REGISTRY, "_run_in_subprocess", ("fn",)),
        Use("vllm.platforms", "current_platform"),
        Use(VARIABLE, "VLLM_CACHE_ROOT"),
    ),
    "No control route answers": (
        Use(VARIABLE, "VLLM_SERVER_DEV_MODE"),
        Use(ROUTE, "POST /pause", _PAUSE),
        Use(STATE, "engine_client"),
        Use("vllm.v1.engine.core_client", "AsyncMPClient.pause_scheduler_async", _PAUSE),
        Use("vllm.renderers.base", "BaseRenderer.clear_mm_cache_async"),
        Use(ROUTE, "POST /resume"),
        Use(ROUTE, "GET /is_paused"),
        Use(ROUTE, "POST /collective_rpc", ("method", "args", "kwargs", "timeout")),
        Use(ROUTE, "POST /reset_prefix_cache", ("reset_running_requests", "reset_external")),
        Use(ROUTE, "POST /reset_encoder_cache"),
        Use(ROUTE, "POST /abort_requests", ("request_ids",)),
        Use(ROUTE, "POST /update_weight_version", ("new_version",)),
        Use(ROUTE, "GET /get_world_size", ("include_dp",)),
        Use(ROUTE, "GET /server_info", ("config_format",)),
    ),
    "A transfer of weights without files is refused": (
        Use(ROUTE, "POST /init_weight_transfer_engine", ("init_info",)),
        Use(ROUTE, "POST /start_weight_update"),
        Use(ROUTE, "POST /update_weights", ("update_info",)),
        Use(ROUTE, "POST /finish_weight_update"),
    ),
    "Samplers miss a route": (
        Use(ROUTE, "POST /inference/v1/generate", ("token_ids", "sampling_params", "cache_salt")),
        Use(ROUTE, "POST /v1/completions", ("return_token_ids", "cache_salt")),
        Use(
            ROUTE,
            "POST /v1/chat/completions",
            ("return_token_ids", "kv_transfer_params", "cache_salt"),
        ),
        Use(ROUTE, "POST /tokenize"),
        Use(ROUTE, "POST /detokenize"),
        Use(ROUTE, "GET /health"),
        Use(ROUTE, "GET /version"),
        Use(STATE, "serving_tokenization"),
        Use("vllm.renderers.base", "BaseRenderer.get_tokenizer"),
        Use("vllm.renderers.base", "BaseRenderer.get_eos_token_id"),
        Use("vllm.config.model", "ModelConfig.try_get_generation_config"),
        Use("vllm.config.model", "ModelConfig.get_vocab_size"),
    ),
    "A reply names its first and last version in headers, not each token's": (
        Use(f"{_GENERATE}.protocol", SPANS, since=(0, 32)),
    ),
    "Adapters are not loaded": (
        Use(STATE, "openai_serving_models"),
        Use(_SERVING, "OpenAIServingModels.load_lora_adapter", ("request",)),
        Use(_SERVING, "OpenAIServingModels.unload_lora_adapter", ("request",)),
        Use(_SERVING, "OpenAIServingModels.lora_requests"),
        Use(_SERVING, "OpenAIServingModels.lora_resolver_lock"),
        Use(_SERVING, "OpenAIServingModels.is_base_model", ("model_name",)),
        Use(_SERVING, "OpenAIServingModels.model_name", ("lora_request",)),
        Use(_SERVING, "OpenAIServingModels.show_available_models"),
        Use("vllm.v1.engine.async_llm", "AsyncLLM.collective_rpc", ("method", "args")),
        Use(_LORA, "LoRAModelManager.get_adapter", ("adapter_id",)),
        Use(_LORA, "LoRAModelManager._get_lora_layer_weights", ("lora_model", "module_name")),
    ),
    "vLLM's own reload is used": (
        Use("vllm.lora.layers", "BaseLayerWithLoRA"),
        Use(f"{_LAYERS}.attention.attention", "set_default_quant_scales", ("layer",)),
        Use(f"{_LAYERS}.linear", "UnquantizedLinearMethod"),
        Use(f"{_LAYERS}.quantization.kv_cache", "BaseKVCacheMethod"),
        Use(_LAYERWISE, "LAYERWISE_INFO"),
        Use(_LAYERWISE, "initialize_layerwise_reload", ("model",)),
        Use(_LAYERWISE, "finalize_layerwise_reload", ("model", "model_config")),
        Use(_LAYERWISE, "get_layerwise_info", ("layer",)),
        Use(_LAYERWISE, "get_numel_loaded"),
        Use(_LAYERWISE, "_get_original_loader", ("tensor",)),
        Use(_LAYERWISE, "_layerwise_process", ("layer", "info")),
        Use(_LAYERWISE, "_place_kernel_tensors", ("layer", "info")),
        Use(f"{_LOADER}.reload.meta", "SKIP_TENSORS"),
        Use(f"{_LOADER}.reload.meta", "to_meta_tensor", ("tensor",)),
        Use(f"{_LOADER}.reload.sanitize", "restore_layer_refs", ("tensor", "layer")),
        Use(f"{_LOADER}.reload.types", "LayerReloadingInfo.restore_metadata"),
        Use(f"{_LOADER}.reload.types", "LayerReloadingInfo.kernel_tensors"),
        Use(f"{_LOADER}.reload.types", "LayerReloadingInfo.loaded_weights"),
        Use(f"{_LOADER}.reload.types", "LayerReloadingInfo.load_numel"),
        Use(f"{_LOADER}.reload.types", "LayerReloadingInfo.can_load"),
        Use(f"{_LOADER}.reload.types", "LayerReloadingInfo.reset"),
        Use(f"{_LOADER}.reload.utils", "get_layer_size", ("layer",)),
        Use(f"{_LOADER}.reload.utils", "get_layer_tensors", ("layer",)),
        Use(f"{_LOADER}.utils", "process_weights_after_loading", ("model", "model_config")),
        Use(f"{_MODEL}.layers.attention", "is_deferred_attention_layer"),
        Use("vllm.utils.torch_utils", "set_default_torch_dtype", ("dtype",)),
    ),
    "A reload fails after the weights": (
        Use("vllm.v1.worker.gpu_worker", "Worker.reload_weights"),
        Use(_RUNNER, "GPUModelRunner.reset_encoder_cache"),
        Use(_RUNNER, "GPUModelRunner.reset_mm_cache"),
        Use("vllm.v1.worker.lora_model_runner_mixin", "LoRAModelRunnerMixin.reset_lora_state"),
        Use(_RUNNER_2, "GPUModelRunner.reset_encoder_cache"),
        Use(_RUNNER_2, "GPUModelRunner.reset_mm_cache"),
        Use(_RUNNER_2, "GPUModelRunner.reset_lora_state"),
    ),
    "What the boot read is not seen": (
        Use(f"{_LOADER}.base_loader", "initialize_model"),
        Use(_MAPPER, "WeightsMapper.apply_list", ("values",)),
        Use(_MAPPER, "WeightsMapper.get_rename_mapper"),
        Use(_MAPPER, "WeightsMapper.orig_to_new_renaming"),
    ),
    "Multimodal models fail the self-test": (
        Use(f"{_LAYERS}.vocab_parallel_embedding", "VocabParallelEmbedding"),
        Use(_INTERFACES, "SupportsMultiModal._tower_model_names"),
        Use(f"{_MODEL}.models.qwen2_vl", "Qwen2VLForConditionalGeneration.get_mm_mapping"),
    ),
    "A drafter keeps the base model's weights": (
        Use("vllm.v1.worker.gpu_worker", "Worker.get_draft_model"),
        Use("vllm.config.speculative", "SpeculativeConfig.draft_model_config"),
    ),
    "Experts are taken in the form of the base model's files alone": (
        Use(_EXPERTS, "RoutedExperts.load_weights", ("weights",)),
        Use(_EXPERTS, "RoutedExperts.get_expert_mapping", ("include_fused",)),
    ),
}
"""By the effect if a name is missing."""


def has(release: str, name: str) -> bool:
    """Return whether a release has the names ``name`` of the table."""
    since = (use.since for uses in USES.values() for use in uses if use.name == name)
    return all(numbers(release) >= first for first in since)


def unknown_flags(release: str) -> frozenset[str]:
    """Return the operator's flags that an older release does not know and does not need."""
    number = numbers(release)
    flags = (use for uses in USES.values() for use in uses if use.place == FLAG)
    return frozenset(use.name for use in flags if number < use.since)


def numbers(release: str) -> tuple[int, ...]:
    """Return a release's leading numbers, to compare releases."""
    found = re.match(r"\d+(\.\d+)*", release)
    return tuple(map(int, found[0].split("."))) if found else ()
