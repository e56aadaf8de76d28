"""Which prepares name other workers, and which workers."""

from dataclasses import replace
from typing import Any

import pytest

from rlfleet_contract.paths import ADMIN_PORT
from rlfleet_contract.worker.report import Progress, Stage
from rlfleet_contract.worker.supply import Supply
from rlfleet_operator.core.model.actions import Prepare
from rlfleet_operator.core.model.pod import ZONE_LABEL, pod_from
from rlfleet_operator.core.model.world import FLEET_LABEL, ORDINAL_LABEL, Worker
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.sharing.supplied import address_of, supplied
from rlfleet_operator.crd.rollout_spec import RolloutSpec
from tests import workers

WEIGHTS = {"path": "/weights/{version}", "sharing": True}


def worker(ordinal: int, node: str = "", **fields: Any) -> Worker:
    known = workers.worker(ordinal, Stage.OPEN, **fields)
    pod = workers.pod(ordinal, address=f"10.0.0.{ordinal}", topology=("", node))
    return Worker(known.name, ordinal, pod, known.report, reachable=True)


def at(ordinal: int) -> str:
    return f"10.0.0.{ordinal}:{ADMIN_PORT}"


def prepares(*known: Worker, weights: dict[str, Any] | None = None) -> dict[str, Prepare]:
    """Return the prepares of step-2 that a plan would send, by worker."""
    world = workers.world(*known, weights=weights or WEIGHTS, weightVersion="step-2")
    asked = [
        Prepare(w.name, "step-2", "rollout-1")
        for w in known
        if w.report and "step-2" not in w.report.staged and w.report.progress is None
    ]
    return {c.worker: c for c in supplied(asked, world) if isinstance(c, Prepare)}


def test_a_fleet_that_does_not_share_sends_the_field_to_no_worker() -> None:
    found = prepares(worker(0), worker(1), weights={"path": "/weights/{version}"})

    assert {prepare.supply for prepare in found.values()} == {None}
    body = found["qwen-0"].request(RolloutSpec()).model_dump(exclude_none=True)
    assert "supply" not in body


def test_the_first_reads_and_each_other_receives_from_those_of_its_node_first() -> None:
    found = prepares(worker(0, "a"), worker(1, "b"), worker(2, "a"), worker(3, "b"))

    supply = {name: prepare.supply for name, prepare in found.items()}
    assert supply["qwen-0"] == Supply(succeeds=True)
    assert supply["qwen-2"] == Supply(readers=(at(0),), senders=(at(0),), succeeds=True)
    assert supply["qwen-3"] == Supply(
        readers=(at(0), at(2), at(1)), senders=(at(1), at(2), at(0)), succeeds=True
    )
    body = found["qwen-2"].request(RolloutSpec()).model_dump(exclude_none=True)
    assert body["supply"]["senders"] == (at(0),)


def test_one_that_comes_later_receives_from_those_that_prepare_or_hold_the_version() -> None:
    receiving = worker(2, progress=Progress(version="step-2"))
    holding = worker(3, staged=["step-2", "step-1"])
    other = worker(4, staged=["step-1"], progress=Progress(version="step-1"))

    found = prepares(worker(0), receiving, holding, other)

    assert found["qwen-0"].supply == Supply(
        readers=(at(3), at(2)), senders=(at(2), at(3)), succeeds=True
    )


def test_workers_out_of_reach_are_left_out() -> None:
    gone = worker(0)
    gone = Worker(gone.name, 0, gone.pod, gone.report, reachable=False)

    assert prepares(gone, worker(1))["qwen-1"].supply == Supply(succeeds=True)


def test_no_worker_shares_the_base_model() -> None:
    world = workers.world(worker(0), weights=WEIGHTS)
    asked = Prepare("qwen-0", "base", "rollout-1")

    assert supplied([asked], world) == [asked]


def test_a_plan_names_the_supply() -> None:
    status = workers.recorded("step-2", "Preparing")
    world = workers.world(
        worker(0), worker(1), weights=WEIGHTS, weightVersion="step-2", status=status
    )
    current = replace(world, template_hash=workers.pod().template_hash)

    found = [action for action in plan(current).actions if isinstance(action, Prepare)]

    assert [action.supply and action.supply.senders for action in found] == [(), (at(0),)]


@pytest.mark.parametrize(
    ("host", "expected"), [("10.1.2.3", "10.1.2.3:8090"), ("fd00::7", "[fd00::7]:8090")]
)
def test_addresses_are_accepted_by_the_contract(host: str, expected: str) -> None:
    assert address_of(host, ADMIN_PORT) == expected
    assert Supply(readers=(expected,)).readers == (expected,)


def test_sidecars_with_and_without_tls_do_not_receive_from_one_another() -> None:
    """As in a fleet that changes to TLS: a handshake would fail, and a token go out in clear."""
    old, new, other = worker(0), worker(1), worker(2)
    found = prepares(*(secured(w) for w in (new, other)), old)

    assert found["qwen-0"].supply == Supply(succeeds=True)
    assert found["qwen-1"].supply == Supply(succeeds=True)
    assert found["qwen-2"].supply is not None
    assert found["qwen-2"].supply.senders == (at(1),)


def secured(known: Worker) -> Worker:
    assert known.pod is not None
    return replace(known, pod=replace(known.pod, tls_secret="qwen-tls"))


def test_a_pod_says_where_it_runs() -> None:
    raw = {
        "metadata": {
            "name": "qwen-0",
            "uid": "p-0",
            "labels": {FLEET_LABEL: "qwen", ORDINAL_LABEL: "0", ZONE_LABEL: "zone-b"},
        },
        "spec": {"nodeName": "node-7"},
    }

    pod = pod_from(raw)

    assert pod is not None
    assert pod.topology == ("zone-b", "node-7")
