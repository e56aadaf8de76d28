"""A real etcd and kube-apiserver, the operator as a process, hollow workers.

All processes among which the tests are shared out have one control plane: it takes longer to
start than most tests take, and each test has a namespace, and an operator of that alone.
"""

import asyncio
import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio import client, config

from dev import plugin, steps
from dev.gitops import definitions
from dev.kubernetes import apiserver, audit, control_plane
from faults import processes
from rlfleet_operator.kube.client import Json, KubeClient, fleet_path
from tests.fakes import checkpoints
from tests.hollow import HollowNode

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ("--set=image.repository=registry.example/operator", "--set=worker.image=w/worker:1")
"""Values that every installation of the chart needs."""
CONTROLLERS = apiserver.GARBAGE_COLLECTION + apiserver.SERVICE_ACCOUNTS + apiserver.AUTOSCALING
WAIT_S = 180.0
"""For what is only waited for: far more than it takes on a machine that others use too."""


PLANE = "plane"
SYSTEM = "rlfleet-of-tests"
"""Apart from where users, and the tests of the demo, install the chart."""
OPERATOR = f"system:serviceaccount:{SYSTEM}:rlfleet"
"""The user that operators are."""
_SHARED = pytest.StashKey[dict[str, str]]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Start the control plane with the first process that tests are shared out to."""
    config: pytest.Config = node.config
    if _SHARED not in config.stash:
        running = ExitStack()
        config.add_cleanup(running.close)
        plane = running.enter_context(_defined())
        config.stash[_SHARED] = {name: str(value) for name, value in asdict(plane).items()}
    node.workerinput[PLANE] = config.stash[_SHARED]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let no test fail of a TLS connection that an earlier one cancelled.

    asyncio leaves a transport open whose connect is cancelled before its handshake begins
    (sslproto, _start_shutdown in the state UNWRAPPED); the hollow node's watch is, when a
    test ends. Whichever test the garbage collector runs in would be blamed.
    """
    for item in items:
        if "/integration/" in str(item.path):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))


@pytest.fixture(scope="session")
def plane(pytestconfig: pytest.Config) -> Iterator[apiserver.ControlPlane]:
    """A control plane that knows the CRD, and those of other projects that we make objects of.

    It is the one that is shared, or one of its own.
    """
    shared: dict[str, str] | None = getattr(pytestconfig, "workerinput", {}).get(PLANE)
    if shared is None:
        with _defined() as running:
            yield running
    else:
        paths = {name: Path(shared[name]) for name in ("kubeconfig", "ca", "logs")}
        yield apiserver.ControlPlane(url=shared["url"], token=shared["token"], **paths)


@contextmanager
def _defined() -> Iterator[apiserver.ControlPlane]:
    steps.run([*apiserver.ready_steps(), *definitions.make_steps()])
    with apiserver.running(controllers=CONTROLLERS) as running:
        kubectl(running, "apply", "-f", str(ROOT / "crds"))
        # Some are too long for the annotation of a client-side apply.
        kubectl(running, "apply", "--server-side", "-f", str(definitions.folder()))
        apiserver.await_definition(running)
        # The first apply left a list of resources without the CRD in kubectl's cache, by which
        # `kubectl create role` judges.
        kubectl(running, "api-resources")
        grant(running)
        yield running


def grant(plane: apiserver.ControlPlane) -> None:
    """Make the operator's ServiceAccount with the chart's rules, and its kubeconfig.

    Each test's operator has its Lease in the test's namespace, so that rule holds everywhere.
    """
    words = ("rlfleet", str(ROOT / "charts" / "rlfleet"), "--namespace", SYSTEM, *IMAGES)
    argv = ["helm", "template", *words, "--show-only", "templates/rbac.yaml"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60)
    made = [one for one in yaml.safe_load_all(done.stdout) if one]
    for one in made:
        if one["kind"] in {"Role", "RoleBinding"}:
            one["kind"] = f"Cluster{one['kind']}"
            del one["metadata"]["namespace"]
        if "roleRef" in one:
            one["roleRef"] |= {"kind": "ClusterRole", "name": f"{one['roleRef']['name']}-of-tests"}
        if one["kind"] != "ServiceAccount":
            one["metadata"]["name"] += "-of-tests"
    kubectl(plane, "create", "namespace", SYSTEM)
    kubectl(plane, "apply", "-f", "-", stdin=yaml.safe_dump_all(made))
    token = kubectl(plane, "-n", SYSTEM, "create", "token", "rlfleet", "--duration=24h").stdout
    text = control_plane.kubeconfig(plane.url, token.strip(), plane.ca)
    control_plane.write_private(operator_kubeconfig(plane), text)


def operator_kubeconfig(plane: apiserver.ControlPlane) -> Path:
    """Return the kubeconfig of the operator's ServiceAccount."""
    return plane.kubeconfig.with_name("operator.kubeconfig")


def kubectl(
    plane: apiserver.ControlPlane, *words: str, stdin: str | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run kubectl as a user would."""
    return subprocess.run(
        ["kubectl", f"--kubeconfig={plane.kubeconfig}", *words],
        input=stdin,
        text=True,
        capture_output=True,
        check=check,
        timeout=60,
    )


class Operator:
    """The operator as a process of its own, forked from one that has imported it.

    To import it takes a second of the processor, which is most of what a test takes.
    """

    module = "rlfleet_operator"
    """What runs it."""

    def __init__(
        self, plane: apiserver.ControlPlane, log: Path, namespace: str, **variables: str
    ) -> None:
        self._plane, self._log, self._namespace = plane, log, namespace
        self._variables = variables
        self._process: ForkServerProcess | None = None

    def start(self) -> None:
        """Start it."""
        variables = {
            "KUBECONFIG": str(operator_kubeconfig(self._plane)),
            "RLFLEET_WORKER_IMAGE": "worker:test",
            "RLFLEET_METRICS_PORT": "0",
            "RLFLEET_NAMESPACES": self._namespace,
            "RLFLEET_POLL_SECONDS": "1",
            **self._variables,
        }
        words = (self.module, variables, str(self._log))
        self._process = processes.context().Process(target=processes.run, args=words, daemon=True)
        self._process.start()

    def kill(self) -> None:
        """End it as a lost node does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it as a Deployment does."""
        self._end(signal.SIGTERM)

    def send(self, what: signal.Signals) -> None:
        """Send it a signal, and wait for nothing."""
        if self._process is not None and self._process.is_alive():
            os.kill(self._process.pid or 0, what)

    async def has_ended(self) -> bool:
        """Return whether it has ended, by itself or by a signal."""
        return self._process is None or not self._process.is_alive()

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self.send(how)
            self._process.join(timeout=30)
            assert not self._process.is_alive(), f"the operator outlives {how.name}"
            self._process = None


@pytest.fixture
def module() -> str:
    """Which operator it is; a module may have one of its own."""
    return Operator.module


@pytest.fixture
def operator(
    plane: apiserver.ControlPlane, tmp_path: Path, namespace: str, module: str
) -> Iterator[Operator]:
    """An operator of the test's own namespace, so that it may be killed."""
    own = Operator(plane, tmp_path / "operator.log", namespace)
    own.module = module
    own.start()
    yield own
    own.stop()


@pytest.fixture
async def kube(plane: apiserver.ControlPlane) -> AsyncIterator[KubeClient]:
    settings = client.Configuration()
    await config.load_kube_config(str(plane.kubeconfig), client_configuration=settings)
    connection = KubeClient(client.ApiClient(settings))
    yield connection
    await connection.close()


@pytest.fixture
def namespace(plane: apiserver.ControlPlane) -> Iterator[str]:
    """A namespace of the test's own, in which no request of an operator may lack a rule."""
    name, log = f"t-{uuid.uuid4().hex[:8]}", audit.log_in(plane.logs)
    begun = audit.position(log)
    kubectl(plane, "create", "namespace", name)
    yield name
    asked = [one for one in audit.asked(log, OPERATOR, begun) if one.namespace in {name, ""}]
    kubectl(plane, "delete", "namespace", name, "--wait=false")
    assert audit.denied(asked) == set()


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Checkpoints step-1 to step-3."""
    root = tmp_path / "weights"
    for step in (1, 2, 3):
        checkpoints.write_version(root, f"step-{step}", seed=step)
    return root


@pytest.fixture
async def node(
    kube: KubeClient, namespace: str, tmp_path: Path, weights: Path
) -> AsyncIterator[HollowNode]:
    model = checkpoints.write_model(tmp_path / "model")
    async with HollowNode(kube, namespace, model, weights, tmp_path / "pods") as hollow:
        yield hollow


class Fleet:
    """One fleet in one namespace, as a user and a test see it."""

    def __init__(self, kube: KubeClient, namespace: str, name: str = "qwen") -> None:
        self.kube, self.namespace, self.name = kube, namespace, name

    @property
    def _collection(self) -> str:
        return fleet_path(self.namespace, "").rstrip("/")

    async def create(self, **spec: Any) -> None:
        """Create it with the least spec and ``spec``."""
        least = {
            "replicas": 2,
            "model": {"name": "qwen", "path": "/models/qwen"},
            "weights": {"path": "/weights/{version}"},
        }
        body = {
            "apiVersion": "rlfleet.dev/v1alpha1",
            "kind": "RLInferenceFleet",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": least | spec,
        }
        await self.kube.create(self._collection, body)

    async def patch(self, **spec: Any) -> None:
        """Merge-patch the spec."""
        await self.kube.patch(fleet_path(self.namespace, self.name), {"spec": spec})

    async def get(self) -> Json:
        """Return the object."""
        return await self.kube.get(fleet_path(self.namespace, self.name))

    async def status(self) -> Json:
        """Return the status."""
        return (await self.get()).get("status") or {}

    async def condition(self, kind: str) -> Json:
        """Return one condition; empty when it is not there or speaks of an older spec."""
        fleet = await self.get()
        for condition in fleet["status"].get("conditions") or ():
            is_current = condition["observedGeneration"] == fleet["metadata"]["generation"]
            if condition["type"] == kind and is_current:
                return dict(condition)
        return {}

    async def synced(self, timeout_s: float = WAIT_S) -> Json:
        """Wait until every worker proved the declared version; return the status."""

        async def is_synced() -> bool:
            return (await self.condition("WeightsSynced")).get("status") == "True"

        await until(is_synced, timeout_s, self.describe)
        return await self.status()

    async def stalled(self, timeout_s: float = WAIT_S) -> Json:
        """Wait until the fleet is stalled; return the condition."""

        async def is_stalled() -> bool:
            return (await self.condition("Stalled")).get("status") == "True"

        await until(is_stalled, timeout_s, self.describe)
        return await self.condition("Stalled")

    async def is_at_epoch(self, epoch: int) -> bool:
        """Return whether a driver of this epoch, or of a later one, has taken it over."""
        return int((await self.status()).get("epoch", 0)) >= epoch

    @asynccontextmanager
    async def writes(self) -> AsyncIterator[list[Json]]:
        """Collect each state that the object is written to."""
        seen: list[Json] = []
        version = (await self.get())["metadata"]["resourceVersion"]

        async def watch() -> None:
            name = f"metadata.name={self.name}"
            async for kind, raw in self.kube.watch(self._collection, version, fieldSelector=name):
                if kind == "MODIFIED":
                    seen.append(raw)

        watching = asyncio.create_task(watch())
        try:
            yield seen
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def describe(self) -> str:
        """Return the status, for a failure's message."""
        return json.dumps(await self.status(), indent=1)

    async def pods(self) -> dict[str, Json]:
        """Return the pods by name."""
        found = await self.kube.get(
            f"/api/v1/namespaces/{self.namespace}/pods",
            labelSelector=f"rlfleet.dev/fleet={self.name}",
        )
        return {pod["metadata"]["name"]: pod for pod in found["items"]}

    async def events(self) -> list[tuple[str, str]]:
        """Return (reason, message) of the fleet's Events."""
        found = await self.kube.get(f"/api/v1/namespaces/{self.namespace}/events")
        return [(e["reason"], e["message"]) for e in found["items"]]

    async def reasons(self) -> list[str]:
        """Return the reasons of the fleet's Events."""
        return [reason for reason, _ in await self.events()]

    async def wait_for_event(self, reason: str, times: int = 1) -> None:
        """Wait until Events report this: they are written after the status."""

        async def is_reported() -> bool:
            return (await self.reasons()).count(reason) >= times

        await until(is_reported, describe=self.describe)


@pytest.fixture
def fleet(kube: KubeClient, namespace: str) -> Fleet:
    return Fleet(kube, namespace)


async def until(
    is_done: Callable[[], Awaitable[bool]],
    timeout_s: float = WAIT_S,
    describe: Callable[[], Awaitable[str]] | None = None,
) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + timeout_s
    while not await is_done():
        if time.monotonic() > deadline:
            seen = await describe() if describe else ""
            raise AssertionError(f"not within {timeout_s} s; seen: {seen}")
        await asyncio.sleep(0.1)


Run = Callable[..., Awaitable[subprocess.CompletedProcess[str]]]
"""Runs `kubectl rlf WORDS`."""


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built file in a folder of its own, and the link that kubectl completes with."""
    made = plugin.write(tmp_path_factory.mktemp("plugin") / plugin.NAME)
    made.with_name("kubectl_complete-rlf").symlink_to(made)
    return made


@pytest.fixture
def user(program: Path, plane: apiserver.ControlPlane, tmp_path: Path) -> dict[str, str]:
    """The environment of a user whose kubectl finds the built file."""
    return {
        "PATH": os.pathsep.join([str(program.parent), *os.get_exec_path()]),
        "HOME": str(tmp_path),
        "KUBECONFIG": str(plane.kubeconfig),
    }


@pytest.fixture
def rlf(user: dict[str, str], namespace: str) -> Run:
    """Run `kubectl rlf WORDS` in the test's namespace; the status is given if it is not 0."""

    async def run(
        *words: str, status: int = 0, verb: str = "rlf"
    ) -> subprocess.CompletedProcess[str]:
        argv = ["kubectl", verb, *words]
        argv += [] if verb != "rlf" else [f"--namespace={namespace}"]
        # In a thread: the hollow workers answer from this loop.
        done = await asyncio.to_thread(
            subprocess.run, argv, env=user, capture_output=True, text=True, check=False, timeout=240
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    return run
