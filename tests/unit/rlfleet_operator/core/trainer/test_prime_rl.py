"""prime-rl's own routes for a whole fleet: what is read, and what has its client repeat a call."""

import pytest

from rlfleet_contract.worker.report import Stage, WorkerReport
from rlfleet_operator.core.trainer import prime_rl
from rlfleet_operator.core.trainer.models import Fault, Refusal, UpdateWeights
from rlfleet_operator.core.trainer.replies import WorkerState
from rlfleet_operator.core.trainer.routes import CLASSIC, label_of
from tests import fleets
from tests.workers import pod, report

PAUSED = report(Stage.PAUSED, proved="step-1")
PROVED = report(Stage.PROVED, proved="step-1")


def state_of(said: WorkerReport | None, *, ready: bool = True) -> WorkerState:
    return WorkerState("qwen-0", pod(ready=ready), said)


@pytest.mark.parametrize(
    ("worker", "rests", "runs", "is_well"),
    [
        (state_of(report()), False, True, True),
        (state_of(PAUSED), True, False, True),
        (state_of(PROVED, ready=False), True, False, True),
        (state_of(report(Stage.LOADING)), False, False, False),
        (state_of(report(Stage.DOUBT), ready=False), False, False, False),
        # Nothing is known of it, and by its pod it takes traffic.
        (state_of(None), False, False, False),
        (state_of(None, ready=False), True, True, False),
        (state_of(report(Stage.DOWN), ready=False), True, True, False),
        (state_of(report(Stage.CLOSED), ready=False), True, True, False),
        (WorkerState("qwen-0", None, None), True, True, False),
    ],
)
def test_a_worker_that_takes_no_traffic_holds_nothing_up(
    worker: WorkerState, *, rests: bool, runs: bool, is_well: bool
) -> None:
    assert prime_rl.rests(worker) is rests
    assert prime_rl.runs(worker) is runs
    assert prime_rl.is_well(worker) is is_well


def test_a_fleet_of_none_is_not_healthy() -> None:
    assert not prime_rl.is_healthy([])
    assert prime_rl.is_healthy([state_of(report()), state_of(PAUSED)])
    assert not prime_rl.is_healthy([state_of(report()), state_of(None, ready=False)])


def test_the_model_is_listed_by_the_name_that_samplers_send() -> None:
    fleet = fleets.fleet()

    (card,) = prime_rl.models_of(fleet)["data"]

    assert card["id"] == fleet.spec.model.name


def test_an_update_is_its_directory_and_what_else_is_sent_is_not_read() -> None:
    body = b'{"weight_dir":"/weights/step-2","version_uid":"7"}'

    assert prime_rl.update_of(body) == UpdateWeights(weight_dir="/weights/step-2")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"weight_dir":null}', b'{"weight_dir":""}'])
def test_an_update_without_a_directory_is_refused(body: bytes) -> None:
    """A trainer whose broadcast was refused takes its weights for sent."""
    with pytest.raises(Refusal) as refused:
        prime_rl.update_of(body)
    assert refused.value.fault is Fault.INVALID_REQUEST


@pytest.mark.parametrize(
    ("retryable", "code", "expected"),
    [
        (True, Fault.NOT_PROVED, 502),
        # The rollout was stopped: no repeat helps.
        (False, Fault.NOT_PROVED, 422),
        (True, Fault.NO_WORKERS, 503),
        (False, Fault.SUPERSEDED, 409),
    ],
)
def test_only_what_passes_by_itself_is_a_5xx(
    code: Fault, expected: int, *, retryable: bool
) -> None:
    assert prime_rl.status_of(code, retryable=retryable) == expected


def test_prime_rl_repeats_what_waits_for_a_rollout() -> None:
    assert (Fault.ROLLOUT_RUNS.status, Fault.ROLLOUT_RUNS.trainer_status) == (409, 503)
    others = set(Fault) - {Fault.ROLLOUT_RUNS}
    assert all(fault.trainer_status == fault.status for fault in others)


def test_what_a_fleet_cannot_do_says_what_to_do_instead() -> None:
    assert "spec.adapters" in prime_rl.unserved("/fleets/a/b/load_lora_adapter").message
    assert "filesystem" in prime_rl.unserved("/fleets/a/b/init_broadcaster").message


def test_every_route_of_prime_rl_s_client_is_there() -> None:
    """As src/prime_rl/utils/client.py calls them."""
    called = {
        "GET health",
        "GET v1/models",
        "POST pause",
        "POST update_weights",
        "POST resume",
        "POST init_broadcaster",
        "POST load_lora_adapter",
        "POST v1/unload_lora_adapter",
    }
    assert {f"{offer.method} {name}" for name, offer in CLASSIC.items()} == called
    assert label_of("v1/models") == "classic.v1.models"
