"""A fleet's life: scaling, restarts of everything, failures, deletion."""

import asyncio
import base64
import re
import time
from pathlib import Path
from typing import Any

import pytest

from dev.kubernetes import apiserver
from rlfleet_operator.errors import Missing
from rlfleet_operator.kube.client import KubeClient, fleet_path, object_path
from tests.fakes import checkpoints
from tests.fakes.behaviour import Behaviour
from tests.hollow import HollowNode
from tests.integration.conftest import Fleet, Operator, kubectl, until

pytestmark = pytest.mark.integration


async def ready(fleet: Fleet) -> int:
    return int((await fleet.status()).get("readyReplicas", 0))


async def test_services_a_budget_and_a_secret_stand_around_the_pods(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await fleet.create(weightVersion="step-1")
    await fleet.synced()
    ns = fleet.namespace

    service = await fleet.kube.get(object_path(ns, "services", "qwen"))
    headless = await fleet.kube.get(object_path(ns, "services", "qwen-workers"))
    budget = await fleet.kube.get(object_path(ns, "poddisruptionbudgets", "qwen"))
    secret = await fleet.kube.get(object_path(ns, "secrets", "qwen-admin"))

    assert [p["port"] for p in service["spec"]["ports"]] == [8000]
    assert headless["spec"]["clusterIP"] == "None"
    assert headless["spec"]["publishNotReadyAddresses"]
    assert budget["spec"]["maxUnavailable"] == 1
    for made in (service, headless, budget, secret):
        assert made["metadata"]["ownerReferences"][0]["name"] == "qwen"


async def test_kubectl_scale_adds_workers_at_the_fleets_version_and_takes_the_last_away(
    plane: apiserver.ControlPlane, operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await fleet.create(weightVersion="step-1")
    await fleet.synced()

    kubectl(plane, "-n", fleet.namespace, "scale", "rlf/qwen", "--replicas=4")
    status = await fleet.synced()
    assert status["proved"] == "4/4"
    assert status["serving"] == "step-1"

    kubectl(plane, "-n", fleet.namespace, "scale", "rlf/qwen", "--replicas=1")
    await until(lambda: _pods_are(fleet, {"qwen-0"}))


async def _pods_are(fleet: Fleet, names: set[str]) -> bool:
    return set(await fleet.pods()) == names


async def test_an_operator_killed_in_mid_rollout_is_taken_over_from_by_the_next(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    node.choose = lambda _: {"behaviour": Behaviour(reload_s=1.0)}
    await fleet.create(weightVersion="step-1", replicas=3, rollout={"maxUnavailable": 1})
    await fleet.synced()
    await fleet.patch(weightVersion="step-2")
    await until(lambda: _some_worker_is_at(node, "step-2"))

    operator.kill()
    await asyncio.sleep(0.5)
    operator.start()
    status = await fleet.synced()

    assert status["serving"] == "step-2"
    assert status["rollout"]["id"] == 2


async def _some_worker_is_at(node: HollowNode, version: str) -> bool:
    reports = [await pod.worker.report() for pod in node.pods.values()]
    return any(report.proved == version for report in reports)


async def test_an_engine_that_was_killed_catches_up_before_it_is_ready_again(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await fleet.create(weightVersion="step-1")
    await fleet.synced()

    await node.worker("qwen-0").kill_engine()
    await until(lambda: _counts(fleet, 1))
    await node.worker("qwen-0").restart_engine()
    await fleet.synced()

    assert (await node.worker("qwen-0").report()).proved == "step-1"


async def _counts(fleet: Fleet, count: int) -> bool:
    return await ready(fleet) == count


async def test_a_worker_that_fails_its_proof_is_out_within_seconds_and_the_others_stay(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await fleet.create(weightVersion="step-1", replicas=3, rollout={"maxUnavailable": 1})
    await fleet.synced()
    for pod in node.pods.values():
        pod.worker.engine.behaviour = Behaviour(nan_logprobs=True)

    await fleet.patch(weightVersion="step-2")
    stalled = await fleet.stalled()
    await until(lambda: _counts(fleet, 2))
    status = await fleet.status()

    assert stalled["reason"] == "RolloutFailed"
    assert status["serving"] == "step-1"
    assert sorted(w["phase"] for w in status["workers"]) == ["Quarantined", "Serving", "Serving"]
    await fleet.wait_for_event("WorkerQuarantined")


async def test_another_version_leads_a_failed_fleet_back(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await fleet.create(weightVersion="step-1")
    await fleet.synced()
    for pod in node.pods.values():
        pod.worker.engine.behaviour = Behaviour(nan_logprobs=True)
    await fleet.patch(weightVersion="step-2")
    await fleet.stalled()
    for pod in node.pods.values():
        pod.worker.engine.behaviour = Behaviour()

    await fleet.patch(weightVersion="step-3")
    status = await fleet.synced()

    assert status["serving"] == "step-3"


async def test_a_newer_version_supersedes_the_one_under_way(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    node.choose = lambda _: {"behaviour": Behaviour(reload_s=1.5)}
    await fleet.create(weightVersion="step-1", replicas=3, rollout={"maxUnavailable": 1})
    await fleet.synced()

    await fleet.patch(weightVersion="step-2")
    await until(lambda: _is_changing(fleet))
    await fleet.patch(weightVersion="step-3")
    status = await fleet.synced()

    assert status["serving"] == "step-3"
    await fleet.wait_for_event("RolloutSuperseded")


async def _is_changing(fleet: Fleet) -> bool:
    phase = (await fleet.status()).get("rollout", {}).get("phase")
    return phase in {"Pausing", "Flushing", "Reloading", "Verifying", "Resuming"}


async def test_a_checkpoint_that_becomes_complete_is_taken_up(
    operator: Operator, node: HollowNode, fleet: Fleet, weights: Path
) -> None:
    await fleet.create(weightVersion="step-1")
    await fleet.synced()
    marker = checkpoints.write_version(weights, "step-4", seed=4) / checkpoints.MARKER
    marker.unlink()

    await fleet.patch(weightVersion="step-4")
    await until(lambda: _is_awaited(fleet))
    assert await fleet.condition("Stalled") == {}

    marker.touch()
    assert (await fleet.synced())["serving"] == "step-4"


async def _is_awaited(fleet: Fleet) -> bool:
    return "no marker" in (await fleet.status())["rollout"]["message"]


@pytest.mark.parametrize(
    ("corruption", "words"),
    [("truncated by half", "model.safetensors"), ("another shape", "shape")],
)
async def test_a_spoiled_checkpoint_is_named_and_pauses_no_worker(
    operator: Operator,
    node: HollowNode,
    fleet: Fleet,
    weights: Path,
    corruption: str,
    words: str,
) -> None:
    await fleet.create(weightVersion="step-1")
    await fleet.synced()
    windows = [w["windowMs"] for w in (await fleet.status())["workers"]]
    checkpoints.spoil(checkpoints.write_version(weights, "bad", seed=9), corruption)

    await fleet.patch(weightVersion="bad")
    stalled = await fleet.stalled()
    status = await fleet.status()

    assert stalled["reason"] == "CheckpointInvalid"
    assert words in stalled["message"]
    assert status["readyReplicas"] == 2
    assert [w["windowMs"] for w in status["workers"]] == windows
    await fleet.wait_for_event("CheckpointInvalid")


async def test_a_changed_template_replaces_the_pods_one_by_one(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await fleet.create(weightVersion="step-1", rollout={"maxUnavailable": 1})
    await fleet.synced()
    before = {name: pod["metadata"]["uid"] for name, pod in (await fleet.pods()).items()}
    fewest = 2

    await fleet.patch(template={"metadata": {"annotations": {"team": "rl"}}})

    async def are_replaced() -> bool:
        nonlocal fewest
        pods = await fleet.pods()
        uids = {name: pod["metadata"]["uid"] for name, pod in pods.items()}
        fewest = min(fewest, sum(_is_ready(pod) for pod in pods.values()))
        return len(uids) == 2 and not set(uids.values()) & set(before.values())

    await until(are_replaced)
    status = await fleet.synced()

    assert status["serving"] == "step-1"
    assert fewest == 1


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


async def test_a_pod_that_is_not_ours_is_named(
    plane: apiserver.ControlPlane, operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    words = ("-n", fleet.namespace, "run", "qwen-0", "--image=other")
    kubectl(plane, *words)

    await fleet.create(weightVersion="step-1")
    stalled = await fleet.stalled()

    assert stalled["reason"] == "ObjectRefused"
    assert "Pod qwen-0 exists and does not belong to this fleet" in stalled["message"]


@pytest.mark.parametrize(
    ("change", "restored"),
    [
        ("rlfleet.dev/fleet-", "rlfleet.dev/fleet=qwen"),
        ("rlfleet.dev/fleet=other", "rlfleet.dev/fleet=qwen"),
        ("rlfleet.dev/ordinal-", "rlfleet.dev/ordinal=0"),
    ],
    ids=["lost", "another fleet's", "without its ordinal"],
)
async def test_a_pod_that_lost_a_label_is_named_until_it_has_it_again(
    plane: apiserver.ControlPlane,
    operator: Operator,
    node: HollowNode,
    fleet: Fleet,
    change: str,
    restored: str,
) -> None:
    label = ("-n", fleet.namespace, "label", "--overwrite", "pod", "qwen-0")
    await fleet.create(weightVersion="step-1")
    await fleet.synced()
    uid = (await fleet.pods())["qwen-0"]["metadata"]["uid"]

    kubectl(plane, *label, change)
    stalled = await fleet.stalled()

    assert stalled["reason"] == "ObjectRefused"
    assert stalled["message"] == (
        f"Pod qwen-0 lost its label {restored}: restore it, or delete the pod"
    )

    kubectl(plane, *label, restored)
    await until(lambda: _is_unstalled(fleet), describe=fleet.describe)
    await until(lambda: _counts(fleet, 2), describe=fleet.describe)
    assert (await fleet.pods())["qwen-0"]["metadata"]["uid"] == uid


async def _is_unstalled(fleet: Fleet) -> bool:
    return await fleet.condition("Stalled") == {}


async def test_a_pod_that_lost_its_annotation_is_named_and_stays(
    plane: apiserver.ControlPlane, operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    """A mutating webhook that replaces annotations would undo each replacement."""
    annotation = "rlfleet.dev/template-hash"
    await fleet.create(weightVersion="step-1")
    await fleet.synced()
    uid = (await fleet.pods())["qwen-0"]["metadata"]["uid"]

    kubectl(plane, "-n", fleet.namespace, "annotate", "pod", "qwen-0", f"{annotation}-")
    stalled = await fleet.stalled()
    await fleet.patch(weightVersion="step-2")
    await until(lambda: _serves(fleet, "step-2"), describe=fleet.describe)

    assert stalled["reason"] == "ObjectRefused"
    assert stalled["message"] == (
        f"Pod qwen-0 lost its annotation {annotation}: delete the pod. If the next one has none"
        " either, mend the mutating webhook or policy that removes it"
    )
    assert (await fleet.pods())["qwen-0"]["metadata"]["uid"] == uid

    kubectl(plane, "-n", fleet.namespace, "delete", "pod", "qwen-0", "--wait=false")
    await until(lambda: _is_unstalled(fleet), describe=fleet.describe)


async def _serves(fleet: Fleet, version: str) -> bool:
    return bool((await fleet.status()).get("serving") == version)


async def test_a_pod_that_fails_at_once_is_replaced_at_growing_intervals(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    node.refuses = lambda name: "OutOfcpu" if name == "qwen-0" else None
    await fleet.create(weightVersion="step-1")

    began = time.monotonic()
    await until(lambda: _are_refused(node, 5))
    took_s = time.monotonic() - began
    # It waits for 16 s now, and at rest.
    await asyncio.sleep(3)
    before = (await fleet.get())["metadata"]["resourceVersion"]
    message = (await fleet.status())["workers"][0]["message"]
    ready = await fleet.condition("Ready")
    await asyncio.sleep(3)

    assert took_s >= 1 + 2 + 4 + 8
    assert re.fullmatch(
        r"pod has failed, will be replaced at [0-9T:-]+Z: OutOfcpu: Pod was rejected", message
    )
    assert message in ready["message"]
    assert (await fleet.get())["metadata"]["resourceVersion"] == before
    assert len(node.refused) == 5

    node.refuses = lambda _: None
    assert (await fleet.synced())["readyReplicas"] == 2


async def _are_refused(node: HollowNode, count: int) -> bool:
    return len(node.refused) >= count


async def test_a_sidecar_that_never_answers_is_named_and_nothing_more_is_written(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    node.strangers = {"qwen-1"}
    await fleet.create(weightVersion="step-1")

    # It is given 30 s.
    await until(lambda: _is_unreachable(fleet, 1), describe=fleet.describe)
    await until(lambda: _counts(fleet, 1), describe=fleet.describe)
    silent = (await fleet.status())["workers"][1]
    ready = await fleet.condition("Ready")

    where = node.worker("qwen-1").admin_url.removeprefix("http://")
    said = f"sidecar at {where} does not answer: Unauthorized: "
    assert silent["message"].startswith(said)
    assert f"; qwen-1: {said}" in ready["message"]

    await asyncio.sleep(2.5)
    before = (await fleet.get())["metadata"]["resourceVersion"]
    await asyncio.sleep(5)
    assert (await fleet.get())["metadata"]["resourceVersion"] == before


async def _is_unreachable(fleet: Fleet, place: int) -> bool:
    workers = (await fleet.status()).get("workers", [])
    return bool(workers) and workers[place]["phase"] == "Unreachable"


async def test_a_fleet_is_deleted_with_the_operator_down(
    operator: Operator, node: HollowNode, fleet: Fleet, kube: KubeClient
) -> None:
    await fleet.create(weightVersion="step-1")
    await fleet.synced()
    operator.kill()

    uid = (await fleet.get())["metadata"]["uid"]
    await kube.delete(fleet_path(fleet.namespace, "qwen"), uid)

    with pytest.raises(Missing):
        await fleet.get()
    await until(lambda: _pods_are(fleet, set()))


async def test_a_service_that_was_deleted_comes_back_when_the_spec_changes(
    plane: apiserver.ControlPlane, operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await fleet.create(weightVersion="step-1")
    await fleet.synced()
    kubectl(plane, "-n", fleet.namespace, "delete", "service", "qwen")

    await fleet.patch(weightVersion="step-2")
    await fleet.synced()

    assert await fleet.kube.get(object_path(fleet.namespace, "services", "qwen"))


async def test_the_admin_token_is_in_no_log_event_or_status(
    plane: apiserver.ControlPlane,
    operator: Operator,
    node: HollowNode,
    fleet: Fleet,
    tmp_path: Path,
) -> None:
    await fleet.create(weightVersion="step-1")
    await fleet.synced()
    words = ("-n", fleet.namespace, "get", "secret", "qwen-admin", "-o", "jsonpath={.data.token}")
    token = kubectl(plane, *words).stdout
    plain = base64.b64decode(token).decode()

    seen = str(await fleet.get()) + str(await fleet.events())
    seen += (tmp_path / "operator.log").read_text()

    assert plain
    assert plain not in seen
    assert token not in seen
