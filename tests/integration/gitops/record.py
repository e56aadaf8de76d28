"""Record fleets as a real operator wrote them, for the tests of what GitOps tools make of them.

    PATH=...:$PATH python -m pytest tests/integration/gitops/record.py

Each scenario drives a fleet on a real API server with real sidecars and fake engines, and keeps
the states that it passes through in tests/recorded/fleets. After it, look at the differences:
tests/recorded/verdicts.yaml has what must be made of each.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from dev.kubernetes import apiserver
from rlfleet_operator.kube.client import Json, fleet_path
from tests.fakes import adapters, checkpoints
from tests.fakes.behaviour import Behaviour
from tests.hollow import HollowNode
from tests.integration.conftest import Fleet, Operator, kubectl, until
from tests.integration.trainers import SPEC, Replica, Trainer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
HERE = Path(__file__).resolve().parents[2] / "recorded"
SLOW = Behaviour(reload_s=1.0)
BROKEN = Behaviour(nan_logprobs=True)
CANARY = {"strategy": "Canary", "canary": {"count": 1, "promote": "Manual"}}
Picks = Callable[[Json], bool]


def phase(name: str, **condition: str) -> Picks:
    """Choose the first state with the rollout in a phase, and conditions with these reasons."""

    def picks(raw: Json) -> bool:
        rollout = (raw.get("status") or {}).get("rollout") or {}
        return rollout.get("phase") == name and reason(**condition)(raw)

    return picks


def reason(**wanted: str) -> Picks:
    """Choose the first observed state whose conditions have these reasons."""

    def picks(raw: Json) -> bool:
        status = raw.get("status") or {}
        found = {one["type"]: one["reason"] for one in status.get("conditions") or ()}
        is_observed = status.get("observedGeneration") == raw["metadata"]["generation"]
        return is_observed and wanted.items() <= found.items()

    return picks


def says(kind: str, begin: str, raw: Json) -> bool:
    """Return whether a condition's message begins so."""
    found = (raw.get("status") or {}).get("conditions") or ()
    return any(one["type"] == kind and one["message"].startswith(begin) for one in found)


def unobserved(raw: Json) -> bool:
    """Choose a state whose spec the operator has not read yet."""
    read = int((raw.get("status") or {}).get("observedGeneration", -1))
    return 0 < read < int(raw["metadata"]["generation"])


class Film:
    """A fleet, and all states that it was written to."""

    def __init__(self, fleet: Fleet, weights: Path) -> None:
        self.fleet, self.weights, self.seen = fleet, weights, list[Json]()
        self._at = 0

    def skip(self) -> None:
        """Look only at states from now on."""
        self._at = len(self.seen)

    async def keep(self, name: str, picks: Picks) -> None:
        """Wait for a state after the last one that was kept, and keep it under a name."""

        async def is_seen() -> bool:
            rest = enumerate(self.seen[self._at :], self._at)
            found = next((at for at, raw in rest if picks(raw)), None)
            if found is not None:
                self._at = found
            return found is not None

        await until(is_seen, 200, self.fleet.describe)
        raw = json.loads(json.dumps(self.seen[self._at]))
        for field in ("managedFields", "uid", "resourceVersion"):
            raw["metadata"].pop(field, None)
        raw["metadata"]["namespace"] = "rl"
        (HERE / "fleets").mkdir(exist_ok=True)
        text = json.dumps(raw, indent=1, sort_keys=True).replace(self.fleet.namespace, "rl")
        text = text.replace(str(self.weights), "/weights")
        (HERE / "fleets" / f"{name}.json").write_text(f"{text}\n")


@pytest.fixture
async def film(fleet: Fleet, weights: Path) -> AsyncIterator[Film]:
    """Follow the fleet from before it is created."""
    made = Film(fleet, weights)
    path = fleet_path(fleet.namespace, "").rstrip("/")
    version = (await fleet.kube.get(path))["metadata"]["resourceVersion"]

    async def watch() -> None:
        async for kind, raw in fleet.kube.watch(path, version):
            if kind in {"ADDED", "MODIFIED"}:
                made.seen.append(raw)

    watching = asyncio.create_task(watch())
    yield made
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def served(film: Film, **spec: Any) -> None:
    """Create a fleet that serves step-1."""
    await film.fleet.create(weightVersion="step-1", **spec)
    await film.fleet.synced()
    film.skip()


def behave(node: HollowNode, behaviour: Behaviour, *names: str) -> None:
    for name, pod in node.pods.items():
        if not names or name in names:
            pod.worker.engine.behaviour = behaviour


async def test_a_fleet_from_its_creation_to_its_end(
    plane: apiserver.ControlPlane,
    namespace: str,
    tmp_path: Path,
    node: HollowNode,
    fleet: Fleet,
    film: Film,
) -> None:
    await fleet.create(weightVersion="step-1")
    await film.keep("created", bool)
    operator = Operator(plane, tmp_path / "operator.log", namespace)
    operator.start()
    try:
        await film.keep("waiting-for-pods", phase("Waiting"))
        await film.keep("first-version", reason(Ready="InsufficientWorkers"))
        await film.keep("serving", reason(WeightsSynced="Proved"))
        kubectl(plane, "-n", namespace, "scale", "rlf/qwen", "--replicas=3")
        await film.keep("scaling-up", reason(Reconciling="CatchingUp"))
        await film.keep("scaled-up", reason(WeightsSynced="Proved"))
        kubectl(plane, "-n", namespace, "scale", "rlf/qwen", "--replicas=0")
        await film.keep(
            "scaled-to-zero",
            lambda raw: reason(Ready="ScaledToZero")(raw) and not raw["status"]["replicas"],
        )
        finalizer = {"metadata": {"finalizers": ["example.com/kept"]}}
        await fleet.kube.patch(fleet_path(namespace, "qwen"), finalizer)
        kubectl(plane, "-n", namespace, "delete", "rlf/qwen", "--wait=false")
        await film.keep("deleted", lambda raw: "deletionTimestamp" in raw["metadata"])
        await fleet.kube.patch(fleet_path(namespace, "qwen"), {"metadata": {"finalizers": None}})
    finally:
        operator.stop()


async def test_a_rolling_change(
    operator: Operator, node: HollowNode, fleet: Fleet, film: Film
) -> None:
    node.choose = lambda _: {"behaviour": SLOW}
    await served(film, replicas=3, rollout={"maxUnavailable": 1})
    await fleet.patch(weightVersion="step-2")
    await film.keep("changed-spec", unobserved)
    await film.keep("preparing", phase("Preparing"))
    await film.keep("reloading", phase("Reloading"))
    await film.keep("two-versions", lambda raw: raw["status"]["serving"] == "")
    await film.keep("completed", phase("Completed", WeightsSynced="Proved"))


async def test_a_rollout_that_is_paused(
    operator: Operator, node: HollowNode, fleet: Fleet, film: Film
) -> None:
    await served(film)
    await fleet.patch(rollout={"paused": True})
    await film.keep(
        "paused-at-rest", lambda raw: raw["spec"]["rollout"]["paused"] and not unobserved(raw)
    )
    await fleet.patch(weightVersion="step-2")
    await film.keep("paused", phase("Paused", Reconciling="Paused"))
    behave(node, SLOW)
    await fleet.patch(rollout={"paused": False})
    await film.keep("resumed", reason(Reconciling="RollingOut"))
    await fleet.synced()


async def test_canaries_that_wait_for_a_person_or_for_time(
    operator: Operator, node: HollowNode, fleet: Fleet, film: Film
) -> None:
    await served(film, rollout=CANARY)
    await fleet.patch(weightVersion="step-2")
    await film.keep("canary-hold", phase("CanaryHold", Reconciling="CanaryHold"))
    behave(node, SLOW)
    await fleet.patch(rollout={"canary": {"promotedVersion": "step-2"}})
    await film.keep("canary-promoted", reason(Reconciling="RollingOut"))
    await fleet.synced()
    await fleet.patch(
        weightVersion="step-3", rollout={"canary": {"promote": "Auto", "holdSeconds": 5}}
    )
    await film.keep("canary-by-time", phase("CanaryHold", Reconciling="CanaryHold"))
    await fleet.synced()


async def test_a_partition_and_a_dry_run(
    operator: Operator, node: HollowNode, fleet: Fleet, film: Film
) -> None:
    await served(film, rollout={"partition": 1})
    await fleet.patch(weightVersion="step-2")
    await film.keep("partitioned", phase("Partitioned", WeightsSynced="Partitioned"))
    await fleet.patch(rollout={"partition": 0})
    await fleet.synced()
    await fleet.patch(weightVersion="step-3", rollout={"dryRun": True})
    await film.keep("dry-run", reason(WeightsSynced="DryRun"))


async def test_a_barrier(operator: Operator, node: HollowNode, fleet: Fleet, film: Film) -> None:
    await served(film, rollout={"strategy": "Barrier"})
    behave(node, SLOW)
    await fleet.patch(weightVersion="step-2")
    await film.keep("barrier-reloading", phase("Reloading"))
    await film.keep("barrier-completed", phase("Completed", WeightsSynced="Proved"))


async def test_a_version_that_does_not_exist(
    operator: Operator, node: HollowNode, fleet: Fleet, film: Film
) -> None:
    await served(film, rollout={"timeouts": {"prepareSeconds": 3}})
    await fleet.patch(weightVersion="step-9")
    await film.keep(
        "waiting-for-version",
        lambda raw: phase("Preparing")(raw) and "step-9" in raw["status"]["rollout"]["message"],
    )
    await film.keep("version-not-found", reason(Stalled="VersionNotFound"))
    await fleet.patch(weightVersion="step-1")
    await film.keep("aborted", reason(WeightsSynced="Proved"))


async def test_a_version_that_fails_everywhere(
    operator: Operator, node: HollowNode, fleet: Fleet, film: Film
) -> None:
    await served(film, replicas=3, rollout={"maxUnavailable": 1})
    behave(node, BROKEN)
    await fleet.patch(weightVersion="step-2")
    await film.keep("failed", phase("Failed", Stalled="RolloutFailed"))
    behave(node, Behaviour(reload_s=0.5))
    await fleet.patch(rollout={"restartId": "again"})
    await film.keep("retried", reason(Reconciling="RollingOut"))
    await film.keep("retried-completed", phase("Completed", WeightsSynced="Proved"))


async def test_one_worker_that_fails(
    operator: Operator, node: HollowNode, fleet: Fleet, film: Film
) -> None:
    await served(film, replicas=3, rollout={"maxUnavailable": 1, "maxFailed": 1})
    behave(node, BROKEN, "qwen-1")
    await fleet.patch(weightVersion="step-2")
    await film.keep("quarantined", reason(Stalled="WorkersQuarantined"))


@pytest.mark.parametrize("policy", ["Rollback", "Hold"])
async def test_what_becomes_of_a_failure(
    operator: Operator, node: HollowNode, fleet: Fleet, film: Film, policy: str
) -> None:
    await served(film, replicas=3, rollout={"maxUnavailable": 1, "onFailure": policy})
    behave(node, SLOW)
    behave(node, BROKEN, "qwen-1")
    await fleet.patch(weightVersion="step-2")
    if policy == "Hold":
        await film.keep("held", phase("Held", Stalled="RolloutHeld"))
        return
    await film.keep("rolling-back", reason(Reconciling="RollingBack"))
    behave(node, Behaviour())
    await film.keep("rolled-back", reason(Stalled="RolledBack"))


async def test_a_deadline_that_passes(
    operator: Operator, node: HollowNode, fleet: Fleet, film: Film
) -> None:
    await served(film)
    behave(node, Behaviour(reload_s=6))
    await fleet.patch(weightVersion="step-2", rollout={"progressDeadlineSeconds": 3})
    await film.keep("deadline-exceeded", reason(Stalled="ProgressDeadlineExceeded"))
    await film.keep("late-but-completed", phase("Completed", WeightsSynced="Proved"))


async def test_an_engine_that_is_killed(
    operator: Operator, node: HollowNode, fleet: Fleet, film: Film
) -> None:
    await served(film)
    await node.worker("qwen-0").kill_engine()
    await film.keep("engine-killed", reason(Ready="InsufficientWorkers"))
    behave(node, SLOW)
    await node.worker("qwen-0").restart_engine()
    await film.keep("engine-back", reason(WeightsSynced="Proved"))


async def test_a_fleet_that_follows(
    operator: Operator, node: HollowNode, fleet: Fleet, film: Film, weights: Path
) -> None:
    for seed in (4, 5):
        checkpoints.write_version(weights, f"weight_v{seed:06d}", seed)
    (weights / "latest").write_text("run-1/weight_v000004")
    await fleet.create(weights={"path": "/weights/{version}", "follow": "Latest"})
    await film.keep(
        "following",
        lambda raw: (
            raw["status"].get("serving") == "weight_v000004" and reason(WeightsSynced="Proved")(raw)
        ),
    )
    (weights / "latest").write_text("run-1/weight_v000005")
    await film.keep(
        "following-the-next",
        lambda raw: (
            raw["status"].get("serving") == "weight_v000005" and reason(WeightsSynced="Proved")(raw)
        ),
    )
    await fleet.patch(weightVersion="weight_v000004")
    await film.keep(
        "pinned",
        lambda raw: (
            raw["status"].get("serving") == "weight_v000004" and reason(WeightsSynced="Proved")(raw)
        ),
    )


def lose(root: Path) -> None:
    root.rename(root.with_name("away"))


async def test_a_store_that_no_worker_reads(
    operator: Operator, node: HollowNode, fleet: Fleet, film: Film, weights: Path
) -> None:
    lose(weights)
    await fleet.create(weights={"path": "/weights/{version}", "follow": "Latest"})
    await film.keep("store-unreadable", reason(Degraded="StoreUnreadable", Ready="AllServing"))


async def test_weights_that_are_too_old(
    operator: Operator, node: HollowNode, fleet: Fleet, film: Film
) -> None:
    await served(film)
    await fleet.patch(staleness={"minVersion": "step-2"})
    await film.keep("stale", lambda raw: "staleness" in raw["spec"] and not unobserved(raw))


async def test_adapters_that_load_and_fail(
    operator: Operator, node: HollowNode, fleet: Fleet, film: Film, weights: Path
) -> None:
    await served(film, engine={"args": ["--enable-lora", "--max-lora-rank=8"]})
    adapters.write_adapter(weights / "poet" / "v1", seed=1)
    behave(node, Behaviour(adapter_s=1))
    one = {"name": "poet", "path": f"{weights}/poet/{{version}}", "version": "v1"}
    await fleet.patch(adapters=[one])
    await film.keep("adapters-loading", reason(Reconciling="LoadingAdapters"))
    await fleet.patch(adapters=[one | {"version": "v2"}])
    await film.keep("adapters-failed", reason(Degraded="AdaptersFailed"))


async def test_objects_that_cannot_be_made(
    operator: Operator, node: HollowNode, fleet: Fleet, film: Film
) -> None:
    spec = {"runtimeClasName": "gvisor"}
    await fleet.create(weightVersion="step-1", template={"spec": spec})
    await film.keep("object-refused", reason(Stalled="ObjectRefused"))


async def test_a_fleet_without_a_version(
    operator: Operator, node: HollowNode, fleet: Fleet, film: Film
) -> None:
    await fleet.create()
    await film.keep("without-version", reason(WeightsSynced="Proved"))


async def test_a_trainer_that_pauses_the_fleet(
    plane: apiserver.ControlPlane,
    namespace: str,
    tmp_path: Path,
    node: HollowNode,
    fleet: Fleet,
    film: Film,
) -> None:
    replica = Replica(plane, tmp_path / "operator.log", namespace)
    replica.start()
    try:
        await until(replica.is_listening)
        await fleet.create(**SPEC)
        trainer = Trainer(fleet)
        await until(lambda: fleet.is_at_epoch(1), describe=fleet.describe)
        assert (await trainer.updates(replica, version="step-1")).status == 200
        await film.keep("trainer-s-version", reason(WeightsSynced="Proved"))
        await trainer.asks(replica, "POST", "pause", json={})
        await film.keep("paused-by-trainer", lambda raw: says("Paused", "2 of 2", raw))
        await trainer.asks(replica, "POST", "resume", content=b"")
        await film.keep("resumed-by-trainer", lambda raw: not raw["status"].get("trainerPause"))
    finally:
        replica.kill()
