"""Two operators: one leads, the other takes over, and no fleet has two drivers."""

import asyncio
import re
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from dev.kubernetes import apiserver
from rlfleet_contract import paths
from rlfleet_contract.worker.report import Stage
from rlfleet_operator.errors import Missing, Refused
from rlfleet_operator.kube.client import KubeClient, fleet_path, object_path
from tests.fakes.behaviour import Behaviour
from tests.hollow import HollowNode
from tests.integration.conftest import Fleet, Operator, until
from tests.patience import seconds_until

pytestmark = pytest.mark.integration

LEASE = "rlfleet"
CLEAN_S, ABRUPT_S = 3.0, 15.0
STUCK_S = 25.0
"""Longer than a driver may fail before it gives no sign of life."""
SLOW = {"behaviour": Behaviour(reload_s=1.0)}


class Replica(Operator):
    """One of several operators, with its metrics."""

    def __init__(
        self, plane: apiserver.ControlPlane, log: Path, namespace: str, leases: str | None = None
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as held:
            port = held.getsockname()[1]
        self._url = f"http://127.0.0.1:{port}"
        self._replica_log = log
        names = {"RLFLEET_LEASE_NAME": LEASE, "RLFLEET_LEASE_NAMESPACE": leases or namespace}
        super().__init__(plane, log, namespace, RLFLEET_METRICS_PORT=str(port), **names)

    async def asked(self, path: str) -> int:
        """Return the status of its answer; 0 while there is none."""
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            try:
                return (await client.get(self._url + path)).status_code
            except httpx.HTTPError:
                return 0

    async def is_ready(self) -> bool:
        return await self.asked("/readyz") == 200

    async def counted(self, pattern: str) -> float:
        """Return the sum of the metrics whose line begins so."""
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            text = (await client.get(self._url + "/metrics")).text
        lines = [line for line in text.splitlines() if re.match(pattern, line)]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    async def sent(self) -> dict[str, float]:
        """Count its writes to Kubernetes and its commands to sidecars; PUT is the Lease alone."""
        return {
            "writes": await self.counted(
                r'rlfleet_api_requests_total{method="(POST|PATCH|DELETE)"'
            ),
            "commands": await self.counted(r"rlfleet_admin_requests_total{.*(prepare|update)"),
        }

    def log(self) -> str:
        return self._replica_log.read_text()

    async def has_resigned(self) -> bool:
        return "Lost the Lease" in self.log()


@pytest.fixture
async def replicas(
    plane: apiserver.ControlPlane, tmp_path: Path, namespace: str
) -> AsyncIterator[tuple[Replica, Replica]]:
    """The leader, and one that stands by."""
    first, second = (Replica(plane, tmp_path / f"{n}.log", namespace) for n in "ab")
    first.start()
    await until(first.is_ready)
    await until(lambda: _leads(first))
    second.start()
    await until(second.is_ready)
    yield first, second
    for replica in (first, second):
        replica.kill()


async def _leads(replica: Replica) -> bool:
    return await replica.counted("rlfleet_leader ") == 1


async def _looks(standby: Replica) -> None:
    """Wait until it has seen the Lease: a replica that finds none takes it."""
    # It looks once a second, and reads nothing else for long.
    gets = 'rlfleet_api_requests_total{method="GET"'
    before = await standby.counted(gets)

    async def has_looked() -> bool:
        return await standby.counted(gets) >= before + 3

    await until(has_looked)


@asynccontextmanager
async def in_mid_rollout(fleet: Fleet, node: HollowNode) -> AsyncIterator[list[int]]:
    """Enter with one of three workers changed; on leaving all are, under strictly rising epochs."""
    node.choose = lambda _: SLOW
    await fleet.create(weightVersion="step-1", replicas=3, rollout={"maxUnavailable": 1})
    await fleet.synced()
    epochs: list[int] = []
    async with fleet.writes() as writes:
        await fleet.patch(weightVersion="step-2")
        await until(lambda: _one_is_at(node, "step-2"))
        yield epochs
        status = await fleet.synced()
    epochs += [written["status"]["epoch"] for written in writes]
    assert status["serving"] == "step-2"
    assert status["rollout"]["id"] == 2
    assert epochs == sorted(epochs)


async def _one_is_at(node: HollowNode, version: str) -> bool:
    reports = [await pod.worker.report() for pod in node.pods.values()]
    return any(report.proved == version for report in reports)


async def _seconds_until_epoch(fleet: Fleet, epoch: int, limit_s: float) -> float:
    return await seconds_until(lambda: fleet.is_at_epoch(epoch), limit_s, turn_s=0.5)


@pytest.mark.parametrize(
    ("how", "limit_s"),
    [(signal.SIGTERM, CLEAN_S), (signal.SIGKILL, ABRUPT_S)],
    ids=["a clean stop", "an abrupt loss"],
)
async def test_the_other_takes_over_in_mid_rollout(
    replicas: tuple[Replica, Replica],
    node: HollowNode,
    fleet: Fleet,
    how: signal.Signals,
    limit_s: float,
) -> None:
    leader, other = replicas
    async with in_mid_rollout(fleet, node) as epochs:
        first = (await fleet.status())["epoch"]
        leader.send(how)
        took_s = await _seconds_until_epoch(fleet, first + 1, limit_s + 5)
    print(f"taken over {took_s:.2f} s after {how.name}")  # noqa: T201 - a figure, with -s

    assert took_s <= limit_s
    assert {first, first + 1} <= set(epochs)
    assert await _leads(other)


async def test_a_leader_that_was_frozen_past_its_lease_sends_nothing(
    replicas: tuple[Replica, Replica], node: HollowNode, fleet: Fleet
) -> None:
    leader, other = replicas
    await fleet.create(weightVersion="step-1", rollout={"maxUnavailable": 1})
    await fleet.synced()
    for pod in node.pods.values():
        pod.worker.engine.behaviour = Behaviour(reload_s=2.0)
    await fleet.patch(weightVersion="step-2")
    await until(lambda: _is_reloading(fleet))

    # The answer to its update comes while it sleeps: it wakes to a rollout to continue.
    epoch = (await fleet.status())["epoch"]
    before = await _sent_at_rest(leader)
    leader.send(signal.SIGSTOP)
    took_s = await _seconds_until_epoch(fleet, epoch + 1, ABRUPT_S + 5)
    await fleet.synced()
    leader.send(signal.SIGCONT)
    await until(leader.has_resigned)
    await asyncio.sleep(3)
    after = await leader.sent()
    print(f"taken over {took_s:.2f} s after SIGSTOP")  # noqa: T201 - the same

    assert took_s <= ABRUPT_S
    assert after["writes"] == before["writes"]
    # A command counts when its answer comes: the one that was under way.
    assert after["commands"] - before["commands"] <= 1
    assert not await _leads(leader)
    assert await _leads(other)
    # Two that report the same workers would be added up.
    assert [await replica.counted("rlfleet_workers{") for replica in replicas] == [0, 2]


async def _sent_at_rest(replica: Replica) -> dict[str, float]:
    """Return what it has sent while it sends nothing: a write under way would be counted late."""
    before = await replica.sent()
    while True:
        await asyncio.sleep(0.1)
        now = await replica.sent()
        if now == before:
            return now
        before = now


async def _is_reloading(fleet: Fleet) -> bool:
    return bool((await fleet.status()).get("rollout", {}).get("phase") == "Reloading")


async def test_a_deleted_fleet_is_not_counted(
    replicas: tuple[Replica, Replica], node: HollowNode, fleet: Fleet, kube: KubeClient
) -> None:
    await fleet.create(weightVersion="step-1")
    await fleet.synced()
    assert await replicas[0].counted("rlfleet_workers{") == 2

    uid = (await fleet.get())["metadata"]["uid"]
    await kube.delete(fleet_path(fleet.namespace, fleet.name), uid)

    await until(lambda: _reports_no_workers(replicas[0]))


async def _reports_no_workers(replica: Replica) -> bool:
    return await replica.counted("rlfleet_workers{") == 0


async def test_one_that_stands_by_is_live_and_ready(replicas: tuple[Replica, Replica]) -> None:
    for replica, leads in zip(replicas, (1, 0), strict=True):
        assert await replica.asked("/healthz") == 200
        assert await replica.asked("/readyz") == 200
        assert await replica.counted("rlfleet_leader ") == leads


async def test_a_higher_epoch_makes_a_driver_end_and_the_leader_stand_again(
    replicas: tuple[Replica, Replica], node: HollowNode, fleet: Fleet
) -> None:
    await fleet.create(weightVersion="step-1")
    await fleet.synced()

    path = fleet_path(fleet.namespace, fleet.name) + "/status"
    await fleet.kube.patch(path, {"status": {"epoch": 7}})
    await until(lambda: fleet.is_at_epoch(8))
    await fleet.patch(weightVersion="step-2")

    assert (await fleet.synced())["epoch"] >= 8
    assert "epoch 7 of a later driver" in replicas[0].log() + replicas[1].log()


async def test_two_operators_with_a_lease_each_take_turns_and_name_each_other(
    plane: apiserver.ControlPlane, tmp_path: Path, node: HollowNode, fleet: Fleet
) -> None:
    """As after a second installation that drives all namespaces."""
    namespaces = (fleet.namespace, "default")
    both = [Replica(plane, tmp_path / one, fleet.namespace, one) for one in namespaces]
    try:
        for replica in both:
            replica.start()
        await fleet.create(weightVersion="step-1")
        await fleet.synced()
        await until(lambda: _names_another(both))
        before = (await fleet.status())["epoch"]
        await asyncio.sleep(8)
        turns = (await fleet.status())["epoch"] - before
        await fleet.patch(weightVersion="step-2")
        await fleet.synced()
    finally:
        for replica in both:
            replica.kill()
    assert turns <= 4


async def _names_another(replicas: list[Replica]) -> bool:
    return any("Another operator drives the same fleets" in one.log() for one in replicas)


async def test_a_number_that_workers_know_and_status_does_not_is_outdone(
    replicas: tuple[Replica, Replica], node: HollowNode, fleet: Fleet
) -> None:
    """As after a backup of the cluster was restored."""
    await fleet.create(weightVersion="step-1")
    await fleet.synced()

    async with node.worker("qwen-0").client() as admin:
        await admin.get(paths.STATE_PATH, headers={paths.EPOCH_HEADER: "41"})
    await fleet.patch(weightVersion="step-2")

    assert (await fleet.synced())["epoch"] >= 42


async def test_a_driver_that_cannot_write_keeps_no_change_alive(
    replicas: tuple[Replica, Replica], node: HollowNode, fleet: Fleet
) -> None:
    await fleet.create(weightVersion="step-1", rollout={"strategy": "Barrier"})
    await fleet.synced()
    node.worker("qwen-1").engine.behaviour = Behaviour(pause_s=50)
    await fleet.patch(weightVersion="step-2")
    await until(lambda: _is_paused(node, "qwen-0"))

    async with no_status_written(fleet):
        begun = time.monotonic()
        while time.monotonic() - begun < STUCK_S:
            # What wakes the driver between two tries says nothing of them.
            await fleet.patch(statusWorkerLimit=5 + int(10 * (time.monotonic() - begun)) % 7)
            await asyncio.sleep(0.3)
        left_s = (await node.worker("qwen-0").report()).expires_s

    assert left_s is not None
    assert left_s < paths.DEFAULT_TTL_S - 5


async def _is_paused(node: HollowNode, name: str) -> bool:
    return (await node.worker(name).report()).stage is Stage.PAUSED


@asynccontextmanager
async def no_status_written(fleet: Fleet) -> AsyncIterator[None]:
    """Have the API server refuse what is written to the fleet's status."""
    group, name = "/apis/admissionregistration.k8s.io/v1", f"no-status-{fleet.namespace}"
    policies = f"{group}/validatingadmissionpolicies"
    bindings = f"{group}/validatingadmissionpolicybindings"
    rule = {
        "apiGroups": ["rlfleet.dev"],
        "apiVersions": ["*"],
        "operations": ["UPDATE"],
        "resources": ["rlinferencefleets/status"],
    }
    policy = {
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": f"object.metadata.namespace != '{fleet.namespace}'"}],
        },
    }
    binding = {
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    made = [await fleet.kube.create(policies, policy), await fleet.kube.create(bindings, binding)]

    async def is_refused() -> bool:
        try:
            path = fleet_path(fleet.namespace, fleet.name) + "/status"
            await fleet.kube.patch(path, {"status": {"selector": "x"}})
        except Refused:
            return True
        return False

    await until(is_refused)
    try:
        yield
    finally:
        for path, one in zip((policies, bindings), made, strict=True):
            await fleet.kube.delete(f"{path}/{name}", one["metadata"]["uid"])


async def test_a_deleted_lease_changes_no_leader(
    replicas: tuple[Replica, Replica], kube: KubeClient, namespace: str
) -> None:
    path = object_path(namespace, "leases", LEASE)
    await _looks(replicas[1])
    before = await kube.get(path)

    await kube.delete(path, before["metadata"]["uid"])

    async def is_back() -> bool:
        try:
            return bool((await kube.get(path))["metadata"]["uid"] != before["metadata"]["uid"])
        except Missing:
            return False

    await until(is_back)
    after = await kube.get(path)
    assert after["spec"]["holderIdentity"] == before["spec"]["holderIdentity"]
    assert await _leads(replicas[0])


async def test_a_clean_stop_gives_the_lease_back(
    replicas: tuple[Replica, Replica], kube: KubeClient, namespace: str
) -> None:
    leader, other = replicas
    other.stop()
    held = (await kube.get(object_path(namespace, "leases", LEASE)))["spec"]

    leader.stop()
    spec = (await kube.get(object_path(namespace, "leases", LEASE)))["spec"]

    assert held["leaseDurationSeconds"] == 10
    assert held["leaseTransitions"] == 0
    assert spec["holderIdentity"] == ""
