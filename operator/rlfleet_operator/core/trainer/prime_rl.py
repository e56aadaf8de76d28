"""prime-rl's own routes, for a whole fleet: what its client sends, and what it reads. Pure.

That client accepts only 200 as success, retries every 5xx and no 4xx, and reads no body.
So temporary errors get a 5xx and final ones a 4xx, even where /v1/rl replies another code. A worker
that takes no traffic delays nothing: it proves the version and waits like the others.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.world import Fleet
from rlfleet_operator.core.trainer.models import Fault, Refusal, UpdateWeights
from rlfleet_operator.core.trainer.replies import WorkerState

UPDATE_S = 600.0
"""How long an update is waited for at most: prime-rl waits 720 s for one answer, and asks again."""
QUIET_S = 240.0
"""How long a pause waits for a rollout that is under way: prime-rl waits 300 s for one answer."""
_UNPROCESSABLE = 422
_SENT = (
    "the fleet API takes weights from a directory: configure prime-rl's filesystem broadcast, or"
    " send weights to each worker's own address"
)
_ADAPTERS = (
    "the fleet API loads no adapters: name them in spec.adapters, or load them at each worker's"
    " own address"
)


def rests(worker: WorkerState) -> bool:
    """Return whether a worker answers no request: paused, or out of traffic."""
    return worker.is_paused or is_out(worker)


def runs(worker: WorkerState) -> bool:
    """Return whether a worker serves, or will: the operator brings back one without traffic."""
    return worker.serves() or is_out(worker)


def is_out(worker: WorkerState) -> bool:
    """Return whether a worker takes no traffic, by its pod and by its report or lack of one."""
    stage = worker.report.stage if worker.report else None
    return not worker.is_ready and stage in {None, Stage.DOWN, Stage.CLOSED}


def is_healthy(workers: Sequence[WorkerState]) -> bool:
    """Return whether a trainer can begin: there are workers, and each serves or is paused."""
    return bool(workers) and all(map(is_well, workers))


def is_well(worker: WorkerState) -> bool:
    """Return whether a worker serves or is paused."""
    return worker.serves() or worker.is_paused


def models_of(fleet: Fleet) -> dict[str, Any]:
    """Return the model as vLLM's /v1/models lists it."""
    model = fleet.spec.model
    card = {"id": model.name, "object": "model", "owned_by": "rlfleet", "root": model.path}
    return {"object": "list", "data": [card]}


def update_of(body: bytes) -> UpdateWeights:
    """Return prime-rl's update, without its other fields; raises Refusal."""
    try:
        found = json.loads(body or b"{}")
    except ValueError as error:
        raise Refusal(
            Fault.INVALID_REQUEST, f"the body is not JSON ({error}); send a JSON object"
        ) from error
    directory = found.get("weight_dir") if isinstance(found, Mapping) else None
    if not isinstance(directory, str) or not directory:
        raise Refusal(Fault.INVALID_REQUEST, f"weight_dir names no directory: {_SENT}")
    return UpdateWeights(weight_dir=directory)


def unserved(path: str) -> Refusal:
    """Return why one of prime-rl's other routes is not served for a fleet."""
    why = _ADAPTERS if path.endswith("lora_adapter") else _SENT
    return Refusal(Fault.INVALID_REQUEST, why)


def status_of(fault: Fault, *, retryable: bool) -> int:
    """Return the HTTP status of an error; 422 if its usual retry is useless for this fleet."""
    return fault.trainer_status if retryable or not fault.retryable else _UNPROCESSABLE
