"""One example for each route about adapters; played after those of dev/docs/http_examples.py."""

from typing import Any

from dev.docs.http_example import Example

_LOAD = {"lora_name": "poet", "lora_path": "/weights/adapters/step-1"}
_NAMED = {"lora_name": "poet"}
_BY_URI = _NAMED | {"source": {"uri": "file:///weights/adapters/step-1"}}
_ADDED = "Success: LoRA adapter 'poet' added successfully."
_REMOVED = "Success: LoRA adapter 'poet' removed successfully."


def _command(method: str, answer: dict[str, Any], **fields: str) -> Example:
    body = {"operation": "by-hand", "name": "poet", "version": "step-1"} | fields
    return Example(f"{method} /v1/rl/adapters", answer, body, has_more=True)


def _dynamo(name: str, done: str, body: dict[str, Any]) -> Example:
    message = f"LoRA adapter 'poet' {done}"
    answer = {"status": "success", "message": message, "lora_name": "poet"}
    return Example(f"POST /engine/{name}", answer, body, has_more=True)


EXAMPLES: tuple[Example, ...] = (
    _command("POST", {"stage": "Open"}, path="/weights/adapters/step-1"),
    _command("DELETE", {"adapters": []}),
    Example("GET /v1/rl/adapters", {"adapters": []}),
    Example("POST /load_lora_adapter", {"status": "ok", "version": "step-1"}, _LOAD, has_more=True),
    Example(
        "POST /skyrl/v1/load_lora_adapter",
        {"status": "ok", "lora_name": "poet"},
        _LOAD,
        has_more=True,
    ),
    Example("POST /v1/load_lora_adapter", _ADDED, _LOAD | {"load_inplace": True}),
    Example("POST /v1/unload_lora_adapter", _REMOVED, {"lora_name": "poet"}),
    _dynamo("load_lora", "loaded successfully", _BY_URI),
    _dynamo("unload_lora", "unloaded successfully", _NAMED),
    _dynamo("update/load_lora", "loaded successfully", _BY_URI | {"load_inplace": True}),
    _dynamo("update/unload_lora", "unloaded successfully", _NAMED),
    Example("POST /engine/update/list_loras", {"status": "success", "loras": {}, "count": 0}, {}),
)
