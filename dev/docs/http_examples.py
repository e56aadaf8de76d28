"""One example for each route of the sidecar, in an order in which they can be played.

docs/reference/http.md shows them, and tests/contract/sidecar/test_http_examples.py plays them
against a worker that has just started, so what is shown is what is answered.
"""

from typing import Any

from dev.docs import adapter_examples
from dev.docs.http_example import Example
from rlfleet_contract.worker.dynamo import ENGINE_ROUTES, instance_of

POD_UID = "0f0e0d0c-0b0a-4908-8706-050403020100"
"""Of the worker that answers."""
_HOST = "qwen-0.qwen-workers.NAMESPACE.svc"


def _command(
    path: str, version: str, answer: dict[str, Any], operation: str = "by-hand", **fields: Any
) -> Example:
    body = {"operation": operation, "version": version} | fields
    return Example(f"POST /v1/rl/{path}", answer, body, has_more=True)


def _post(path: str, answer: dict[str, Any], body: dict[str, Any] | None = None) -> Example:
    return Example(f"POST {path}", answer, body)


def _refused(
    path: str, status: int, code: str, message: str, body: dict[str, Any] | None = None
) -> Example:
    answer = {"status": "error", "code": code, "message": message, "retryable": False}
    return Example(f"POST {path}", answer, body, status, has_more=True)


def _dynamo(name: str, answer: dict[str, Any], **body: Any) -> Example:
    return Example(f"POST /engine/{name}", {"status": "ok"} | answer, body)


OTHER_ENGINE = (
    "not supported: this call needs prime-rl's worker extension; use vLLM's"
    " /init_weight_transfer_engine, or write a checkpoint and send"
    ' {"weight_dir": DIRECTORY}'
)
BETWEEN_GPUS = "not supported: set actor.weight_update_mode=disk, and send /areal_update_weights"
DRAFT = "weights of a draft model are not supported; send the model's own"


def _unserved(path: str, message: str, body: dict[str, Any] | None = None) -> Example:
    return _refused(path, 400, "InvalidRequest", message, body)


_GROUP = {"master_address": "10.0.0.9", "master_port": 29500, "rank_offset": 1, "world_size": 2}
_PART = {"names": ["lm_head.weight"], "dtype_names": ["bfloat16"], "shapes": [[32, 16]]}

_EDITION = "0123456789abcdef" * 2


_ALL = ["Installed", "Parameters", "Probe"]
_LOADED = {"status": "ok", "weight_version": "step-2", "verified_by": _ALL}

EXAMPLES: tuple[Example, ...] = (
    Example("GET /live", {"live": True}),
    Example("GET /ready", {"ready": False}, status=503),
    _command("prepare", "step-1", {"stage": "Closed", "prepared": "step-1"}),
    _command("update_weights", "step-1", {"stage": "Open", "proved": "step-1"}, mode="Keep"),
    Example("GET /v1/rl/state", {"stage": "Open", "proved": "step-1"}, has_more=True),
    Example("GET /v1/rl/watch", {"stage": "Open", "proved": "step-1"}, has_more=True),
    _command("prepare", "step-2", {"stage": "Open", "prepared": "step-2"}, "step-by-step"),
    _command("pause", "step-2", {"stage": "Paused"}, "step-by-step", ttl_s=120),
    _command("flush", "step-2", {"stage": "Paused"}, "step-by-step"),
    _command("reload", "step-2", {"stage": "Loaded"}, "step-by-step"),
    _command("verify", "step-2", {"stage": "Proved", "proved": "step-2"}, "step-by-step"),
    _command("resume", "step-2", {"stage": "Open", "proved": "step-2"}, "step-by-step"),
    Example("GET /health", {"status": "ok"}),
    Example("GET /liveness", {"status": "ok"}),
    Example("GET /v1/models", {"data": [{"id": "fake"}]}, has_more=True),
    Example("GET /metrics", 'vllm:num_requests_running{engine="0",model_name="fake"} 0'),
    Example("GET /get_world_size", {"world_size": 1}),
    Example(
        "GET /server_info?config_format=json",
        {
            "vllm_config": {
                "model_config": {
                    "served_model_name": "fake",
                    "dtype": "torch.bfloat16",
                    "max_model_len": 4096,
                    "logprobs_mode": "raw_logprobs",
                },
                "parallel_config": {"data_parallel_size": 1},
                "lora_config": {"max_lora_rank": 8, "max_loras": 4, "max_cpu_loras": 16},
                "cache_config": None,
                "scheduler_config": None,
                "weight_transfer_config": None,
            },
            "vllm_env": {},
            "system_env": {},
        },
    ),
    Example(
        "GET /v1/rl/workers",
        {
            "protocol_version": 1,
            "namespace": "rlfleet",
            "workers": [
                {
                    "namespace": "rlfleet",
                    "component": "worker",
                    "endpoint": "rl",
                    "instance_id": instance_of(POD_UID),
                    "transport": "http",
                    "request_plane_url": f"http://{_HOST}:8000",
                    "routes": list(ENGINE_ROUTES),
                    "system_url": f"http://{_HOST}:8090",
                    "admin_base_url": f"http://{_HOST}:8090",
                    "model": "fake",
                    "world_size": 1,
                }
            ],
        },
    ),
    _command("prepare", "step-1", {"prepared": "step-1"}, "back"),
    _command("update_weights", "step-1", {"proved": "step-1"}, "back"),
    _post(
        "/pause?mode=keep&clear_cache=false",
        {"status": "paused", "mode": "keep", "clear_cache": False},
    ),
    Example("GET /is_paused", {"is_paused": True}),
    _post("/update_weights", _LOADED, {"weight_dir": "/weights/step-2"}),
    _post("/resume", {"status": "resumed"}),
    _post(
        "/update_weights",
        {
            "status": "ok",
            "message": "nothing was loaded: weight_dir names no directory",
            "weight_version": "step-2",
        },
        {"weight_dir": None},
    ),
    Example("GET /weight_info", {"weight_version": "step-2"}),
    _post(
        "/update_weight_version",
        {"success": True, "new_version": "step-2"},
        {"new_version": "step-2"},
    ),
    _post("/reset_prefix_cache", {"success": True}, {"reset_running_requests": True}),
    _post("/sleep?level=0", {"status": "sleeping", "level": 0}),
    Example("GET /is_sleeping", {"is_sleeping": True}),
    _post("/wake_up?tags=scheduling", {"status": "awake", "tags": ["scheduling"]}),
    _post(
        "/areal_pause_generation",
        {"success": True, "message": "Generation paused and all requests aborted"},
    ),
    _post(
        "/areal_update_weights",
        {
            "success": True,
            "message": "loaded and proved",
            "weight_version": "step-2",
            "verified_by": _ALL,
        },
        {"model_path": "/weights/step-2"},
    ),
    _post("/areal_continue_generation", {"success": True, "message": "Generation continued"}),
    _unserved("/areal_init_weights_update_group", BETWEEN_GPUS, {"master_address": "10.0.0.9"}),
    _post(
        "/collective_rpc",
        {"results": [None]},
        {"method": "update_weights_from_path", "args": ["/weights/step-2"], "kwargs": {}},
    ),
    _unserved("/init_broadcaster", OTHER_ENGINE, {"host": "trainer", "port": 29501}),
    _post(
        "/init_weight_transfer_engine",
        {"message": "Weight transfer initialized"},
        {"init_info": _GROUP},
    ),
    _post("/pause?mode=keep", {"status": "paused", "mode": "keep", "clear_cache": True}),
    _post(
        "/start_weight_update", {"message": "Weight update started"}, {"is_checkpoint_format": True}
    ),
    _post("/update_weights", {"message": "Weights updated"}, {"update_info": _PART}),
    _post(
        "/finish_weight_update",
        {
            "message": "Weight update finished",
            "weight_version": "42",
            "verified_by": ["Probe"],
        },
        {"weight_version": "42"},
    ),
    _post("/shutdown_weight_transfer_engine", {"message": "Weight transfer shut down"}),
    _post("/resume", {"status": "resumed"}),
    _unserved("/start_draft_weight_update", DRAFT),
    _refused(
        "/resume",
        409,
        "WrongStage",
        f"the last update failed (InvalidRequest: {DRAFT}; this worker has sent-42); load a"
        " good version, or pause again, then resume",
    ),
    _dynamo(
        "pause_generation",
        {"message": "paused", "mode": "keep", "clear_cache": False},
        mode="keep",
        clear_cache=False,
    ),
    _dynamo(
        "update_weights_from_disk",
        {"message": "loaded and proved", "version": "step-2"} | _LOADED,
        model_path="/weights/step-2",
    ),
    _dynamo("resume_generation", {"message": "resumed"}),
    _dynamo("flush_cache", {"success": True}),
    _dynamo("abort_request", {"request_id": "turn-7"}, request_id="turn-7"),
    _dynamo(
        "sleep",
        {"message": "paused", "mode": "keep", "clear_cache": True, "level": 0},
        level=0,
    ),
    _dynamo("wake_up", {"message": "resumed", "tags": None}),
    _dynamo("is_paused", {"is_paused": False, "is_sleeping": False}),
    _dynamo("liveness_probe", {"alive": True}),
    _dynamo(
        "get_weight_version",
        {"version": "step-2", "version_declared": True, "weight_version": "step-2"},
    ),
    _dynamo(
        "set_weight_version", {"success": True, "new_version": "step-2"}, weight_version="step-2"
    ),
    _dynamo(
        "init_weights_update_group",
        {"message": "Weight transfer initialized"},
        engine_rpc="init_weight_transfer_engine",
        init_info=_GROUP,
    ),
    _unserved(
        "/engine/update_weights_from_distributed", OTHER_ENGINE, {"weight_dir": "/weights/step-2"}
    ),
    _unserved("/engine/update_weights_from_tensor", OTHER_ENGINE),
    _dynamo(
        "control/pause_generation",
        {"status": "paused", "message": "paused", "mode": "keep", "clear_cache": True},
    ),
    _dynamo("control/is_paused", {"is_paused": True, "is_sleeping": True}),
    _dynamo("control/resume_generation", {"status": "resumed", "message": "resumed"}),
    _dynamo("control/is_sleeping", {"is_paused": False, "is_sleeping": False}),
    _dynamo(
        "control/sleep",
        {
            "status": "sleeping",
            "message": "paused",
            "mode": "keep",
            "clear_cache": True,
            "level": 0,
        },
        level=0,
    ),
    _dynamo("control/wake_up", {"status": "awake", "message": "resumed", "tags": None}),
    _dynamo(
        "control/get_weight_version",
        {"version": "step-2", "version_declared": True, "weight_version": "step-2"},
    ),
    _dynamo(
        "update/update_weight_version",
        {"success": True, "new_version": "step-2"},
        new_version="step-2",
    ),
    *adapter_examples.EXAMPLES,
    _dynamo(
        "update/init_weight_transfer_engine",
        {"message": "Weight transfer initialized"},
        init_info=_GROUP,
    ),
    _unserved("/engine/update/start_draft_weight_update", DRAFT),
    _dynamo(
        "control/pause_generation",
        {"status": "paused", "message": "paused", "mode": "keep", "clear_cache": True},
    ),
    _dynamo("update/start_weight_update", {"message": "Weight update started"}),
    _dynamo("update/update_weights", {"message": "Weights updated"}, update_info=_PART),
    _dynamo(
        "update/finish_weight_update",
        {
            "message": "Weight update finished",
            "weight_version": "43",
            "verified_by": ["Probe"],
        },
        weight_version="43",
    ),
)

PIECES: tuple[Example, ...] = tuple(
    Example(
        f"GET /v1/rl/pieces/step-2/{_EDITION}{number}",
        {
            "code": "VersionNotFound",
            "message": f"this worker does not share step-2 (edition {_EDITION}); ask another"
            " worker",
        },
        status=404,
        has_more=True,
    )
    for number in ("", "/0")
)
"""Of routes by which workers ask one another; the page leaves them out."""
