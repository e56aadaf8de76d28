"""The calls with which a trainer sends weights into vLLM's own engine."""

from typing import Any

from tests.contract.transcripts import Call, dynamo

GROUP = {"master_address": "10.0.0.9", "master_port": 29500, "rank_offset": 1, "world_size": 2}
PART = {"names": ["lm_head.weight"], "dtype_names": ["bfloat16"], "shapes": [[32, 16]]}


def posted(path: str, status: int = 200, body: Any = None, **fields: Any) -> Call:
    wrong = {"status": "error"} if status >= 400 else {}
    return Call(f"POST {path}", status, wrong | fields, body)


INIT = posted("/init_weight_transfer_engine", body={"init_info": GROUP})
START = posted("/start_weight_update", body={"is_checkpoint_format": True})
SEND = posted("/update_weights", body={"update_info": PART}, message="Weights updated")


def finish(named: str | None = None) -> Call:
    body = None if named is None else {"weight_version": named}
    fields: dict[str, Any] = {"verified_by": ["Probe"]} | (
        {} if named is None else {"weight_version": named}
    )
    return posted("/finish_weight_update", body=body, **fields)


def rpc(method: str, kwargs: dict[str, Any] | None = None, status: int = 200) -> Call:
    """Make a call of a method of the engine's workers, as SkyRL does."""
    fields = {"results": [None]} if status == 200 else {}
    body = {"method": method} | ({} if kwargs is None else {"kwargs": kwargs})
    return posted("/collective_rpc", status, body, **fields)


DYNAMO_INIT = dynamo(
    "init_weights_update_group",
    body={"engine_rpc": "init_weight_transfer_engine", "init_info": GROUP},
)
UNPAUSED = {"allow_unpaused": True, "reset_prefix_cache": False}
"""What NeMo-RL sends with each of its three posts."""


def refit(**also: Any) -> tuple[Call, ...]:
    """Make Dynamo's three posts of an update."""
    return tuple(
        dynamo("update_weights_from_distributed", body={"engine_rpc": name, **more, **also})
        for name, more in (
            ("start_weight_update", {"is_checkpoint_format": True}),
            ("update_weights", {"update_info": PART | {"packed": True}}),
            ("finish_weight_update", {}),
        )
    )
