"""Clients of trainers as they are, played against a worker: each right turn and each wrong one."""

from typing import Any

import pytest

from tests.contract.subject import Subject
from tests.contract.transcripts import (
    ANY,
    HELD,
    PAUSE,
    RESUME,
    RUNS,
    Call,
    Engine,
    Step,
    Touch,
    Write,
    dynamo,
    play,
    resume_refused,
    serves,
    update,
)
from tests.fakes.behaviour import Behaviour
from tests.fakes.worker import Worker

DISK = {"model_path": "{weights}/step-2", "engine_rpc": "update_weights_from_path"}
KEEP = {"mode": "keep", "clear_cache": False}

POET = {"lora_name": "poet"}

GROUP = {"host": "h", "port": 29501, "rank_offset": 0, "inference_world_size": 2}


def nothing(directory: str | None, status: int = 200, **fields: Any) -> Call:
    """Make prime-rl's update after a broadcast: it names no directory."""
    good = {"status": "ok"} if status == 200 else {"status": "error"}
    body = {"weight_dir": directory, "version_uid": "v3"}
    return Call("POST /update_weights", status, good | fields, body)


BROADCASTS = tuple(
    Call(request, 400, {"status": "error", "message": "prime-rl's worker extension"}, body)
    for request, body in (
        ("POST /init_broadcaster", GROUP),
        ("POST /collective_rpc", {"method": "init_broadcaster", "kwargs": GROUP}),
        ("POST /engine/init_weights_update_group", {"engine_rpc": "init_broadcaster"} | GROUP),
        ("POST /engine/init_weights_update_group", GROUP),
    )
)
"""Each way to ask for prime-rl's own engine; its client passes over the refusal."""
HONEST: dict[str, tuple[Step, ...]] = {
    "prime-rl: start-up and one step": (
        Call("GET /health"),
        Call("GET /v1/models", fields={"data": ANY}),
        PAUSE,
        update("step-1"),
        RESUME,
        RUNS,
        Call("GET /metrics"),
        PAUSE,
        HELD,
        update("step-2", verified_by=ANY),
        HELD,
        RESUME,
        RUNS,
        serves("step-2"),
    ),
    "prime-rl: the version that is served already": (PAUSE, update("step-1"), RESUME, RUNS),
    "prime-rl: nothing to load": (
        PAUSE,
        *(
            nothing(directory, message="nothing was loaded", weight_version=ANY)
            for directory in (None, "")
        ),
        RESUME,
        serves("step-1"),
    ),
    "prime-rl: pause and resume are sent again when an answer was lost": (
        *[PAUSE] * 3,
        HELD,
        *[update("step-2")] * 2,
        *[RESUME] * 3,
        RUNS,
    ),
    **{
        f"prime-rl: broadcast {place} is rejected, it continues, and no new policy counts": (
            call,
            RUNS,
            *[
                PAUSE,
                nothing(None, 400, message="prime-rl's worker extension"),
                resume_refused(),
                HELD,
            ]
            * 2,
            PAUSE,
            nothing("", 400, message="prime-rl's worker extension"),
            dynamo("update_weights_from_disk", 400, message="prime-rl's worker extension"),
            resume_refused(),
            serves("step-1"),
            PAUSE,
            update("step-2"),
            nothing(None),
            RESUME,
            RUNS,
        )
        for place, call in enumerate(BROADCASTS)
    },
    "prime-rl: a directory outside, and the resume after it": (
        PAUSE,
        Call(
            "POST /update_weights",
            422,
            {"status": "error", "code": "PathRefused", "message": "/etc/step-2"},
            {"weight_dir": "/etc/step-2"},
        ),
        resume_refused(),
        HELD,
        PAUSE,
        update("step-2"),
        RESUME,
        serves("step-2"),
    ),
    "prime-rl: a damaged checkpoint, and the resume after it": (
        PAUSE,
        update("step-truncated", 422, code="CheckpointInvalid", retryable=False),
        resume_refused(message="CheckpointInvalid"),
        HELD,
        serves("step-1"),
        PAUSE,
        RESUME,
        serves("step-1"),
        RUNS,
    ),
    "prime-rl through Dynamo's admin URL": (
        PAUSE,
        Call(
            "POST /collective_rpc",
            fields={"results": [None]},
            body={
                "method": "update_weights_from_path",
                "timeout": 720,
                "args": ["{weights}/step-2"],
                "kwargs": {},
            },
        ),
        RESUME,
        serves("step-2"),
    ),
    "SkyRL: the parts that control": (
        Call("GET /get_world_size", fields={"world_size": 1}, body={}),
        Call("POST /reset_prefix_cache", fields={"success": ANY}, body={}),
        Call(
            "POST /reset_prefix_cache",
            fields={"success": True},
            body={"reset_running_requests": True},
        ),
        PAUSE,
        RESUME,
        Call("POST /sleep?level=1", 400, {"status": "error", "message": "level"}),
        Call("POST /wake_up?tags=weights&tags=kv_cache", fields={"tags": ["weights", "kv_cache"]}),
        RUNS,
    ),
    "vLLM: a group that does not form changes nothing, and nothing is sent without one": (
        # An engine on a CPU is refused before it tries (EngineUnfaithful), with the same status.
        Call("POST /init_weight_transfer_engine", 422, {"retryable": False}, {"init_info": {}}),
        RUNS,
        PAUSE,
        Call("POST /update_weights", 409, {"message": "start_weight"}, {"update_info": {}}),
        resume_refused(),
        PAUSE,
        Call(
            "POST /collective_rpc",
            400,
            {"message": "expected one"},
            {"method": "update_weights_ipc"},
        ),
        resume_refused(),
    ),
    "TRL: its own way to vLLM": (
        Call("GET /get_world_size", fields={"world_size": 1}),
        PAUSE,
        Call(
            "POST /start_weight_update",
            409,
            {"code": "WrongStage", "message": "init_weight_transfer_engine first"},
            {"is_checkpoint_format": True},
        ),
        Call("POST /finish_weight_update", 409, {"message": "start_weight_update first"}),
        resume_refused(),
        HELD,
        PAUSE,
        RESUME,
        serves("step-1"),
    ),
    "vime: a sleep of level 0 is a pause": (
        Call("POST /reset_prefix_cache?reset_running_requests=False&reset_external=False"),
        Call("POST /sleep?level=0", fields={"status": "sleeping", "level": 0}),
        Call("GET /is_sleeping", fields={"is_sleeping": True}),
        Call("POST /wake_up", fields={"status": "awake", "tags": None}),
        Call("GET /is_sleeping", fields={"is_sleeping": False}),
    ),
    "vLLM: a version is not declared": (
        serves("step-1"),
        Call(
            "POST /update_weight_version",
            fields={"success": True, "new_version": "step-1"},
            body={"new_version": "step-1"},
        ),
        Call("POST /update_weight_version", 409, {"message": "step-1"}, {"new_version": "9"}),
        serves("step-1"),
    ),
    "Dynamo: its Python worker's routes": (
        dynamo("update_weights_from_disk", 409, DISK, message="pause_generation first"),
        dynamo("pause_generation", body=KEEP, mode="keep", clear_cache=False, message=ANY),
        dynamo("update_weights_from_disk", body=DISK, version="step-2", message=ANY),
        dynamo("resume_generation"),
        dynamo("get_weight_version", version="step-2", version_declared=True),
        dynamo("flush_cache", success=True),
        dynamo("liveness_probe", alive=True),
        dynamo("sleep", body={"level": 0}, level=0, message=ANY),
        dynamo("is_paused", is_sleeping=True),
        dynamo("wake_up", tags=None, message=ANY),
        dynamo("abort_request", body={"request_id": "nobody-s"}, request_id="nobody-s"),
        RUNS,
    ),
    "Dynamo: a failure is in the body and in the HTTP status, and a good update ends it": (
        dynamo("pause_generation", body=KEEP),
        dynamo("update_weights_from_disk", 400, DISK | {"weight_version": "7"}, message="step-2"),
        dynamo("resume_generation", 409, message="the last update failed"),
        dynamo("init_weights_update_group", 400, {"host": "h"}, message="prime-rl"),
        dynamo("update_weights_from_distributed", 400, {"weight_dir": "/w"}, message="prime-rl"),
        dynamo("load_lora", 400, POET, message="source: is required"),
        dynamo("load_lora", 400, POET | {"source": {"uri": "s3://b/poet"}}, message="source.uri"),
        dynamo("load_lora", 400, POET | {"source": {"uri": "file://["}}, message="source.uri"),
        dynamo(
            "load_lora", 400, {"source": {"uri": "file:///w"}}, message="lora_name: is required"
        ),
        dynamo("unload_lora", 400, POET, message="'poet' not found"),
        dynamo("list_loras", 404, message="unknown route /engine/list_loras"),
        dynamo("abort_request", 400, message="request_id: is required"),
        dynamo("sleep", 400, message="level: 1"),
        dynamo("pause_generation", 400, {"mode": "later"}, message="mode: got later"),
        dynamo("update_weights_from_disk", body=DISK, version="step-2", message=ANY),
        dynamo("resume_generation"),
        serves("step-2"),
    ),
    "Dynamo: its native sidecar's routes": (
        Call("POST /engine/control/pause_generation", fields={"status": "paused"}, body={}),
        Call("POST /engine/control/is_paused", fields={"is_paused": True}),
        dynamo("update/start_weight_update", 409, message="init_weight_transfer_engine first"),
        Call("POST /engine/control/resume_generation", 409, {"status": "error"}, {}),
        Call("POST /engine/control/sleep", fields={"status": "sleeping"}, body={"level": 0}),
        Call("POST /engine/control/wake_up", fields={"status": "awake"}, body={}),
        Call("POST /engine/control/get_weight_version", fields={"weight_version": "step-1"}),
        dynamo("update/update_weight_version", 409, {"new_version": "step-2"}),
        Call("POST /engine/update/list_loras", fields={"status": "success", "count": ANY}, body={}),
    ),
}
"""Against any worker, a fake one or a real one, that serves step-1."""

LIES: dict[str, tuple[Step, ...]] = {
    "prime-rl: a reload that fails is final, and its resume is refused": (
        PAUSE,
        Engine(Behaviour(reload_fails=True)),
        update("step-2", 422, code="ReloadFailed", retryable=False),
        resume_refused("EngineInDoubt"),
        PAUSE,
        Call("POST /resume", 409, {"code": "EngineInDoubt"}),
        Engine(),
        update("step-1"),
        RESUME,
        serves("step-1"),
        RUNS,
    ),
    "prime-rl: weights that do not take are final": (
        PAUSE,
        Engine(Behaviour(wobbles=True)),
        update("step-2", 422, code="ProofFailed"),
        resume_refused("EngineInDoubt"),
        HELD,
        serves(None),
    ),
    "prime-rl: what a repeat can mend is repeated": (
        Engine(Behaviour(pause_fails=True)),
        Call("POST /pause?mode=keep&clear_cache=false", 502, {"code": "PauseFailed"}),
        Engine(),
        PAUSE,
        Engine(Behaviour(pause_fails=True)),
        update("step-2", 502, code="PauseFailed", retryable=True),
        Engine(),
        update("step-2"),
        RESUME,
        serves("step-2"),
    ),
    "prime-rl: it gave up, and its resume is refused though the engine runs on": (
        Call("POST /pause"),
        Engine(Behaviour(flush_fails=True)),
        update("step-2", 502, code="FlushFailed"),
        RUNS,
        resume_refused(message="FlushFailed"),
        serves("step-1"),
        Engine(),
        PAUSE,
        RESUME,
    ),
    "prime-rl: NCCL_READY lies next to the weights": (
        Write("step-7"),
        PAUSE,
        Touch("{weights}/step-7/NCCL_READY"),
        update("step-7"),
        RESUME,
        serves("step-7"),
    ),
    "prime-rl: it created the directory, and no weights were written": (
        PAUSE,
        Touch("{weights}/step-8/NCCL_READY"),
        update("step-8", 425, code="CheckpointIncomplete", message="no marker"),
        resume_refused(message="CheckpointIncomplete"),
    ),
    "Dynamo: caches that could not be emptied": (
        Engine(Behaviour(flush_fails=True)),
        dynamo("flush_cache", 502, message="blocks"),
        Call("POST /reset_prefix_cache", fields={"success": False}),
    ),
}
"""Against the fake worker, which can lie; it waits 0.2 s for a version."""


@pytest.fixture
def identity() -> dict[str, object]:
    """Return further settings: no long wait for a version."""
    return {"trainer_wait_s": 0.2}


@pytest.mark.parametrize("name", HONEST)
async def test_a_client_is_answered_as_it_expects(subject: Subject, name: str) -> None:
    await subject.serve("step-1")

    await play(HONEST[name], subject)


@pytest.mark.parametrize("name", LIES)
async def test_a_client_is_answered_rightly_when_something_goes_wrong(
    subject: Subject, fake: Worker, name: str
) -> None:
    await subject.serve("step-1")

    await play(LIES[name], subject, fake)
