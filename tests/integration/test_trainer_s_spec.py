"""A trainer sets spec.weightVersion with rlfleet.fleet, as a ServiceAccount with its role alone."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from dev.kubernetes import apiserver, control_plane
from rlfleet.fleet import (
    AsyncFleetClient,
    AsyncSpecClient,
    FleetError,
    FleetUnreachableError,
    NotProvedError,
    SpecClient,
    VersionSupersededError,
    WaitTimeoutError,
    kube_access,
)
from tests.fakes.behaviour import Behaviour
from tests.hollow import HollowNode
from tests.integration.chart.rendering import rendered
from tests.integration.conftest import Fleet, Operator, kubectl, until
from tests.integration.trainers import SPEC, Replica, Trainer

pytestmark = pytest.mark.integration

WORKERS = ("qwen-0", "qwen-1")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "minimal-trainer" / "access.yaml"


def made(plane: apiserver.ControlPlane, namespace: str, *objects: dict[str, Any]) -> None:
    kubectl(
        plane, "apply", f"--namespace={namespace}", "-f", "-", stdin=yaml.safe_dump_all(objects)
    )


def token_of(plane: apiserver.ControlPlane, namespace: str, account: str) -> str:
    return kubectl(plane, f"--namespace={namespace}", "create", "token", account).stdout.strip()


@pytest.fixture
def account(
    plane: apiserver.ControlPlane, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Be a pod with the example's ServiceAccount, and the chart's role in this namespace alone."""
    (role,) = [
        one
        for one in yaml.safe_load_all(rendered("-s", "templates/user-roles.yaml"))
        if one["metadata"]["name"] == "rlfleet-trainer"
    ]
    objects = list(yaml.safe_load_all(EXAMPLE.read_text()))
    for one in objects:
        if one["kind"] == "RoleBinding":
            assert one["roleRef"]["name"] == role["metadata"]["name"]
            one["roleRef"]["kind"] = "Role"
    made(plane, namespace, role | {"kind": "Role"}, *objects)
    folder, at = tmp_path / "account", urlsplit(plane.url)
    folder.mkdir()
    (folder / "token").write_text(token_of(plane, namespace, "minimal-trainer"))
    (folder / "namespace").write_text(namespace)
    (folder / "ca.crt").write_bytes(plane.ca.read_bytes())
    monkeypatch.setattr(kube_access, "SERVICE_ACCOUNT", folder)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(at.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(at.port))
    return folder


async def both_run(node: HollowNode) -> None:
    async def is_so() -> bool:
        return set(WORKERS) <= node.pods.keys()

    await until(is_so)


def behave(node: HollowNode, **how: Any) -> None:
    for name in WORKERS:
        node.worker(name).engine.behaviour = Behaviour(**how)


def asked_for(fleet: Fleet, version: str) -> Callable[[], Any]:
    async def is_so() -> bool:
        return bool((await fleet.status()).get("target") == version)

    return is_so


async def test_a_trainer_s_pod_sets_versions_and_waits_until_they_are_proved(
    account: Path, operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await fleet.create(**SPEC)
    told: list[str] = []

    def train() -> list[object]:
        with SpecClient("qwen") as client:
            before = client.state()
            first = client.update_weights("step-1", 120, lambda now: told.append(now.message))
            asked = client.set_version("step-2")
            after = client.wait("step-2", timeout_s=120)
        return [
            before.desired_version, first.status, first.message, asked.desired_version,
            after.applied_version, after.desired_by, after.ready, after.paused,
        ]  # fmt: skip

    found = await asyncio.to_thread(train)

    done = "2 of 2 workers proved step-1"
    assert found == [None, "ok", done, "step-2", "step-2", "spec", True, False]
    assert told[0] == "the operator has not read this spec yet"
    assert len(told) == len([one for n, one in enumerate(told) if n == 0 or told[n - 1] != one])
    entries = (await fleet.get())["metadata"]["managedFields"]
    (own,) = [one for one in entries if one["manager"] == "rlfleet-trainer"]
    assert own["fieldsV1"] == {"f:spec": {"f:weightVersion": {}}}


async def test_a_manager_that_applies_the_rest_keeps_the_trainer_s_version(
    account: Path, plane: apiserver.ControlPlane, fleet: Fleet
) -> None:
    await fleet.create(**SPEC)
    raw = await fleet.get()
    rest = {key: raw[key] for key in ("apiVersion", "kind", "spec")} | {
        "metadata": {"name": "qwen"}
    }
    words = (f"--namespace={fleet.namespace}", "apply", "--server-side", "--force-conflicts")
    manager = "--field-manager=argocd-controller"

    async with AsyncSpecClient("qwen") as client:
        await client.set_version("step-1")
        kubectl(plane, *words, manager, "-f", "-", stdin=yaml.safe_dump(rest))
        assert (await client.state()).desired_version == "step-1"
        rest["spec"]["weightVersion"] = "step-3"
        kubectl(plane, *words, manager, "-f", "-", stdin=yaml.safe_dump(rest))
        with pytest.raises(
            VersionSupersededError, match="is step-3, not step-1, written by argocd"
        ):
            await client.wait("step-1", timeout_s=30)


async def test_a_version_that_fails_is_raised_with_the_workers_reasons(
    account: Path, operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await fleet.create(**SPEC)
    await both_run(node)
    behave(node, reload_fails=True)
    async with AsyncSpecClient("qwen") as client:
        with pytest.raises(NotProvedError) as failed:
            await client.update_weights("step-1", timeout_s=120)
        with pytest.raises(NotProvedError, match="0 of 2 workers proved step-1"):
            await client.wait("step-1", timeout_s=120)
        behave(node)
        result = await client.update_weights("step-2", timeout_s=120)

    assert failed.value.code == "NotProved"
    assert any("ReloadFailed" in str(one.message) for one in failed.value.workers)
    assert result.message == "2 of 2 workers proved step-2"


async def test_a_version_that_another_replaces_or_removes_is_superseded(
    account: Path, operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await fleet.create(**SPEC)
    await both_run(node)
    behave(node, reload_s=2.0)
    async with AsyncSpecClient("qwen") as client:
        for version, other, told in (
            ("step-1", "step-2", r"spec\.weightVersion is step-2, not step-1"),
            ("step-3", None, r"spec\.weightVersion was removed"),
        ):
            going = asyncio.create_task(client.update_weights(version, timeout_s=120))
            await until(asked_for(fleet, version), describe=fleet.describe)
            await fleet.patch(weightVersion=other)
            with pytest.raises(VersionSupersededError, match=told):
                await going


async def test_what_the_api_server_rejects_says_why_and_what_to_do(
    account: Path, plane: apiserver.ControlPlane, fleet: Fleet
) -> None:
    await fleet.create(**SPEC)
    namespace, good = fleet.namespace, (account / "token").read_text()
    made(
        plane,
        namespace,
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "stranger"}},
    )
    found = []
    async with AsyncSpecClient("qwen") as client, AsyncSpecClient("qwem") as other:
        for token, asked in (
            (good, client.update_weights("a/b")),
            (good, other.update_weights("step-1")),
            (token_of(plane, namespace, "stranger"), client.set_version("step-1")),
            (token_of(plane, namespace, "stranger"), client.wait("step-1")),
            ("expired", client.state()),
        ):
            (account / "token").write_text(f"{token}\n")
            with pytest.raises(FleetError) as caught:
                await asked
            found.append((caught.value.status, caught.value.code, str(caught.value)))
        # The kubelet writes another token, and the same client uses it.
        (account / "token").write_text(good)
        assert (await client.set_version("step-1")).desired_version == "step-1"

    assert [one[:2] for one in found] == [
        (422, "Invalid"), (404, "NotFound"), (403, "Forbidden"), (403, "Forbidden"),
        (401, "Unauthorized"),
    ]  # fmt: skip
    role = f"bind the user to the chart's ClusterRole RELEASE-trainer in namespace {namespace}"
    for (_, _, message), words in zip(
        found,
        (
            ("spec.weightVersion", "must be one directory name"),
            (f"no fleet qwem in namespace {namespace}; create it",),
            ('cannot patch resource "rlinferencefleets"', role),
            ('cannot get resource "rlinferencefleets"', role),
            ("check the ServiceAccount's token",),
        ),
        strict=True,
    ):
        assert [word for word in words if word not in message] == [], message


async def test_a_fleet_that_is_deleted_ends_the_wait(account: Path, fleet: Fleet) -> None:
    """No operator runs: nothing is ever proved."""
    await fleet.create(**SPEC)
    async with AsyncSpecClient("qwen") as client:
        with pytest.raises(WaitTimeoutError, match="the operator has not read this spec yet"):
            await client.update_weights("step-1", timeout_s=2)
        going = asyncio.create_task(client.update_weights("step-1", timeout_s=120))
        await asyncio.sleep(1.5)
        await fleet.kube.delete(
            f"/apis/rlfleet.dev/v1alpha1/namespaces/{fleet.namespace}/rlinferencefleets/qwen",
            (await fleet.get())["metadata"]["uid"],
        )
        with pytest.raises(FleetError, match="no fleet qwen") as gone:
            await going

    assert gone.value.code == "NotFound"


class Relay:
    """Passes bytes on to the API server, until it is cut."""

    def __init__(self, plane: apiserver.ControlPlane) -> None:
        self._to, self._port = urlsplit(plane.url), 0
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self._port

    async def cut(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._to.hostname, self._to.port)
        self._open |= {writer, back}
        await asyncio.gather(self._pass(reader, back), self._pass(there, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while some := await reader.read(65536):
                writer.write(some)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()
            self._open.discard(writer)


@asynccontextmanager
async def relayed(plane: apiserver.ControlPlane, path: Path) -> AsyncIterator[Relay]:
    """Yield a relay, and write the kubeconfig of it."""
    relay = Relay(plane)
    url = f"https://127.0.0.1:{await relay.start()}"
    control_plane.write_private(path, control_plane.kubeconfig(url, plane.token, plane.ca))
    yield relay
    await relay.cut()


@pytest.mark.parametrize("kind", [SpecClient, AsyncSpecClient])
async def test_a_wait_outlives_an_api_server_that_is_away(
    plane: apiserver.ControlPlane,
    operator: Operator,
    node: HollowNode,
    fleet: Fleet,
    tmp_path: Path,
    kind: type[SpecClient] | type[AsyncSpecClient],
) -> None:
    await fleet.create(**SPEC)
    await both_run(node)
    behave(node, reload_s=2.0)
    path = tmp_path / "relay.kubeconfig"

    async def train(timeout_s: float) -> object:
        found = kind("qwen", fleet.namespace, kubeconfig=path)
        if isinstance(found, SpecClient):
            with found:
                return await asyncio.to_thread(found.update_weights, "step-1", timeout_s)
        async with found:
            return await found.update_weights("step-1", timeout_s)

    async with relayed(plane, path) as relay:
        going = asyncio.create_task(train(120))
        await until(asked_for(fleet, "step-1"), describe=fleet.describe)
        await relay.cut()
        await asyncio.sleep(2)
        assert not going.done()
        await relay.start()
        result: Any = await going
        await relay.cut()
        with pytest.raises(FleetUnreachableError, match="the API server does not answer"):
            await train(2)

    assert result.message == "2 of 2 workers proved step-1"


async def test_a_wait_is_for_the_version_of_a_store_and_of_a_trainer_too(
    account: Path, plane: apiserver.ControlPlane, node: HollowNode, fleet: Fleet, tmp_path: Path
) -> None:
    replica = Replica(plane, tmp_path / "operator.log", fleet.namespace)
    replica.start()
    try:
        await until(replica.is_listening)
        await fleet.create(**SPEC)
        await both_run(node)
        url = f"{replica.url}/fleets/{fleet.namespace}/qwen"
        token = await Trainer(fleet).token()
        async with AsyncSpecClient("qwen") as client, AsyncFleetClient(url, token) as asking:
            going = asyncio.create_task(asking.update_weights("step-1", timeout_s=120))
            by_trainer = await client.wait("step-1", timeout_s=120)
            await going
            same = await asking.state()
            await fleet.patch(weights={"path": "/weights/{version}", "follow": "Latest"})
            by_store = await client.wait("step-3", timeout_s=120)
            pinned = await client.update_weights("step-2", timeout_s=120)
    finally:
        replica.kill()

    exact = {"namespace", "fleet", "ready", "paused", "desired_version", "desired_by"}
    exact |= {"applied_version", "rollout", "in_flight"}
    assert by_trainer.model_dump(include=exact) == same.model_dump(include=exact)
    assert by_trainer.desired_by == "trainer"
    assert (by_store.desired_by, by_store.applied_version) == ("spec", "step-3")
    assert pinned.message == "2 of 2 workers proved step-2"
