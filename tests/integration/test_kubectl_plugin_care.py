"""doctor, report, top and plan of `make plugin`'s file, against a real API server.

What only a kubelet shows is in tests/e2e/test_kubectl_plugin.py.
"""

import asyncio
import json
import socket
import subprocess
import tarfile
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from dev.kubernetes import apiserver
from rlfleet_kubectl.core.names import OPERATOR_PODS
from rlfleet_kubectl.errors import Exit
from tests.hollow import HollowNode
from tests.integration.conftest import IMAGES, ROOT, Fleet, Operator, Run, kubectl, until
from tests.unit.rlfleet_view.recordings import HERE

pytestmark = pytest.mark.integration

PLANTED = "pl4nted-S3cret_Value"
LEASE = "rlfleet"


def installed(plane: apiserver.ControlPlane, namespace: str) -> None:
    """Install the chart for one namespace; no controller writes the status."""
    chart = str(ROOT / "charts" / "rlfleet")
    words = ["helm", "install", LEASE, chart, f"--namespace={namespace}", *IMAGES]
    words += ["--set=crds.enabled=false", f"--set=namespaces={{{namespace}}}"]
    # Those are of the whole cluster, where another test's helm would find them.
    words += ["--set=rbac.userRoles=false", f"--kubeconfig={plane.kubeconfig}"]
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=60)
    written(plane, namespace, "deployment", LEASE, {"replicas": 2, "readyReplicas": 2})


def written(
    plane: apiserver.ControlPlane, namespace: str, kind: str, name: str, status: dict[str, Any]
) -> None:
    """Write a status, as a controller or a kubelet would."""
    patch = json.dumps({"status": status})
    words = ("patch", kind, name, "--subresource=status", "--type=merge", "-p", patch)
    kubectl(plane, f"--namespace={namespace}", *words)


@pytest.fixture
async def healthy(
    plane: apiserver.ControlPlane, tmp_path: Path, namespace: str, node: HollowNode, fleet: Fleet
) -> AsyncIterator[Fleet]:
    """A fleet that serves, and an installation with a leader."""
    own = {"RLFLEET_LEASE_NAME": LEASE, "RLFLEET_LEASE_NAMESPACE": namespace}
    leader = Operator(plane, tmp_path / "operator.log", namespace, **own)
    leader.start()
    await asyncio.to_thread(installed, plane, namespace)
    await fleet.create(weightVersion="step-1", rollout={"timeouts": {"prepareSeconds": 15}})
    await fleet.synced()
    yield fleet
    await asyncio.to_thread(leader.stop)


def checks(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    """Return the findings by the names of their checks."""
    return {one["check"]: one for one in json.loads(done.stdout)["findings"]}


async def test_doctor_finds_what_was_broken_and_nothing_before(
    plane: apiserver.ControlPlane, healthy: Fleet, rlf: Run
) -> None:
    near = f"--operator-namespace={healthy.namespace}"
    well = await rlf("doctor", near)
    assert "nothing wrong was found" in well.stdout, well.stdout

    def here(*words: str) -> None:
        kubectl(plane, f"--namespace={healthy.namespace}", *words)

    here("delete", "rolebinding", LEASE)
    here("delete", "secret", "qwen-admin")
    here("create", "secret", "generic", "qwen-admin", "--from-literal=token=")
    volume = {"persistentVolumeClaim": {"claimName": "nowhere"}}
    await healthy.patch(template={"spec": {"volumes": [{"name": "more", **volume}]}})

    found = checks(await rlf("doctor", "qwen", near, "-o", "json", status=Exit.FAILED))
    lacking = found["OperatorAccess"]
    assert f"system:serviceaccount:{healthy.namespace}:rlfleet may not" in lacking["found"]
    assert "get, list, watch, create, patch, delete pods;" in lacking["found"]
    assert found["TokenEmpty"]["mend"].endswith("delete secret qwen-admin")
    assert found["ClaimMissing"]["objects"] == [f"claim {healthy.namespace}/nowhere"]
    said = (await rlf("doctor", "qwen", near, status=Exit.FAILED)).stdout
    assert f"ERROR    secret {healthy.namespace}/qwen-admin  TokenEmpty\n" in said


async def test_doctor_names_a_version_that_is_not_there(healthy: Fleet, rlf: Run) -> None:
    await healthy.patch(weightVersion="step-9")
    await healthy.stalled()

    words = ("doctor", "qwen", f"--operator-namespace={healthy.namespace}", "-o", "json")
    found = checks(await rlf(*words, status=Exit.FAILED))
    assert "VersionNotFound" in found["Stalled"]["found"]
    assert "fix `weightVersion`" in found["Stalled"]["mend"]


async def test_doctor_says_what_a_user_may_not_read(fleet: Fleet, rlf: Run) -> None:
    await fleet.create(weightVersion="step-1")

    words = ("doctor", "--as=eve", f"--operator-namespace={fleet.namespace}", "-o", "json")
    done = await rlf(*words, status=Exit.FAILED)
    found = json.loads(done.stdout)["findings"]
    assert {one["check"] for one in found} == {"UserAccess", "NotReadable"}
    assert any('User "eve" cannot list resource' in one["found"] for one in found)
    assert "list rlinferencefleets.rlfleet.dev (for get, doctor, report)" in found[0]["found"]


async def test_doctor_without_an_operator_says_where_it_looked(
    plane: apiserver.ControlPlane, fleet: Fleet, rlf: Run
) -> None:
    near = f"--operator-namespace={fleet.namespace}"
    found = checks(await rlf("doctor", near, "-o", "json", status=Exit.FAILED))

    assert found["OperatorMissing"]["objects"] == [f"namespace {fleet.namespace}"]
    assert set(found) == {"OperatorMissing"}
    await rlf("doctor", "absent", status=Exit.FAILED)


def planted(namespace: str) -> str:
    """Return objects with the secret in every place that the API server takes it in."""
    env = [{"name": "HF_TOKEN", "value": PLANTED}, {"name": "URL", "value": f"s3://{PLANTED}@b"}]
    notes = {"example.com/token": PLANTED, "note": f"curl -H 'Authorization: Bearer {PLANTED}'"}
    fleet = {
        "apiVersion": "rlfleet.dev/v1alpha1",
        "kind": "RLInferenceFleet",
        "metadata": {"name": "leaky", "annotations": notes},
        "spec": {
            "model": {"name": "qwen", "path": "/models/qwen"},
            "weights": {"path": "/weights/{version}"},
            "engine": {"extraEnv": env, "args": [f"--hf-token={PLANTED}", "--hf-token", PLANTED]},
            "template": {"metadata": {"annotations": notes}},
        },
    }
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "leaky.1"},
        "involvedObject": {"kind": "Pod", "name": "leaky-0", "namespace": namespace},
        "reason": "Failed",
        "message": f'pull "https://user:{PLANTED}@registry/x": denied, password={PLANTED}',
    }
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "leaky-admin", "annotations": notes},
        "stringData": {"token": PLANTED},
    }
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [fleet, event, secret]})


async def test_no_planted_secret_is_in_a_report(
    plane: apiserver.ControlPlane, operator: Operator, fleet: Fleet, rlf: Run, tmp_path: Path
) -> None:
    here = f"--namespace={fleet.namespace}"
    kubectl(plane, here, "apply", "-f", "-", stdin=planted(fleet.namespace))
    leaky = Fleet(fleet.kube, fleet.namespace, "leaky")
    await until(lambda: has_pod(leaky), describe=leaky.describe)

    target = tmp_path / "report.tar.gz"
    done = await rlf("report", f"--file={target}", f"--operator-namespace={fleet.namespace}")
    assert f"wrote {target}: " in done.stdout
    assert target.stat().st_mode & 0o077 == 0
    files = unpacked(target)
    assert [name for name, text in files.items() if PLANTED in text] == []
    pods = files[f"objects/{fleet.namespace}/pods.json"]
    assert "leaky-0" in pods
    assert '"--hf-token=[removed]"' in pods
    assert "HF_TOKEN" in pods
    # Its keys and their lengths, and nothing of its value.
    assert "leaky-admin: token (base64, 28)" in files[f"secrets/{fleet.namespace}.txt"]
    assert set(json.loads(files["manifest.json"])["files"]) == set(files) - {
        "manifest.json",
        "README.txt",
    }
    assert "OperatorMissing" in files["doctor.txt"]


async def test_a_report_says_what_it_could_not_read(fleet: Fleet, rlf: Run, tmp_path: Path) -> None:
    target = tmp_path / "report.tar.gz"
    near = f"--operator-namespace={fleet.namespace}"
    await rlf("report", f"--file={target}", "--as=eve", near)

    manifest = json.loads(unpacked(target)["manifest.json"])
    assert 'User "eve" cannot list' in manifest["unread"][f"objects/{fleet.namespace}/pods"]
    elsewhere = await rlf("report", "--file=/nowhere/x.tar.gz", near, status=Exit.FAILED)
    assert "cannot write /nowhere/x.tar.gz: No such file" in elsewhere.stderr


def unpacked(path: Path) -> dict[str, str]:
    """Return the files of a report, without the folder that they are in."""
    with tarfile.open(path) as packed:
        return {
            entry.name.partition("/")[2]: found.read().decode()
            for entry in packed.getmembers()
            if (found := packed.extractfile(entry)) is not None
        }


async def has_pod(fleet: Fleet) -> bool:
    return bool(await fleet.pods())


def own_address() -> str:
    """Return this machine's address: the API server is no proxy to loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


@pytest.fixture
def engine() -> Iterator[str]:
    """The address of a server with an engine's metrics, which computes 100 tokens a reading."""
    registry = CollectorRegistry()
    tokens = Counter("vllm:generation_tokens", "Tokens.", ["engine"], registry=registry)
    Gauge("vllm:num_requests_waiting", "Waiting.", ["engine"], registry=registry).labels("0").set(4)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tokens.labels("0").inc(100)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(generate_latest(registry))

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer((own_address(), 8000), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield own_address()
    server.shutdown()
    server.server_close()


async def test_top_counts_tokens_through_the_api_server(
    plane: apiserver.ControlPlane, fleet: Fleet, rlf: Run, engine: str
) -> None:
    await fleet.create(weightVersion="step-1")
    recorded = json.loads((HERE / "synced.json").read_text())["status"]
    written(plane, fleet.namespace, "rlf", "qwen", recorded)
    here = f"--namespace={fleet.namespace}"
    kubectl(plane, here, "run", "qwen-0", "--image=x")
    written(plane, fleet.namespace, "pod", "qwen-0", {"podIP": engine, "podIPs": [{"ip": engine}]})

    near = f"--operator-namespace={fleet.namespace}"
    done = await rlf("top", "qwen", "--interval=1s", near, "-o", "json")
    (found,) = json.loads(done.stdout)
    first, other = found["workers"]
    assert 5 < first["generated"] <= 100
    assert (first["waiting"], first["behind"]) == (4.0, 0)
    assert (other["name"], other["generated"]) == ("qwen-1", None)
    assert "no metrics of qwen-1: " in done.stderr
    table = (await rlf("top", "--interval=0.2s", near)).stdout.splitlines()
    assert table[0].split()[:5] == ["NAME", "PHASE", "VERSION", "BEHIND", "TOKENS/S"]
    denied = await rlf("top", "qwen", "--as=eve", near, status=Exit.FAILED)
    assert 'User "eve" cannot get resource' in denied.stderr


MANIFEST = """\
apiVersion: rlfleet.dev/v1alpha1
kind: RLInferenceFleet
metadata: {name: qwen}
spec: {weightVersion: step-2}
"""


async def test_plan_says_why_it_cannot_run(
    plane: apiserver.ControlPlane, fleet: Fleet, rlf: Run, tmp_path: Path
) -> None:
    near = f"--operator-namespace={fleet.namespace}"
    await fleet.create(weightVersion="step-1")
    none = await rlf("plan", "qwen", near, status=Exit.FAILED)
    assert f"no operator runs in namespace {fleet.namespace} (pods found: 0)" in none.stderr

    here = f"--namespace={fleet.namespace}"
    label = f"--labels={OPERATOR_PODS}"
    # From 1.37 kubectl itself refuses a container that the pod lacks, before the API can deny.
    containers = '--overrides={"spec":{"containers":[{"name":"operator","image":"x"}]}}'
    kubectl(plane, here, "run", "operator-0", "--image=x", label, containers)
    written(plane, fleet.namespace, "pod", "operator-0", {"phase": "Running"})
    manifest = tmp_path / "fleet.yaml"
    manifest.write_text(MANIFEST)
    unready = await rlf("plan", "qwen", "-f", str(manifest), near, status=Exit.FAILED)
    assert f"plan failed in {fleet.namespace}/operator-0: " in unready.stderr
    other = await rlf("plan", "other", "-f", str(manifest), near, status=Exit.FAILED)
    assert f"{manifest} has no fleet other (fleets in it: qwen)" in other.stderr
    kubectl(plane, here, "create", "role", "reader", "--verb=get,list", "--resource=pods,rlf")
    kubectl(plane, here, "create", "rolebinding", "reader", "--role=reader", "--user=ann")
    denied = await rlf("plan", "qwen", near, "--as=ann", status=Exit.FAILED)
    assert f"it needs create on pods/exec in {fleet.namespace}" in denied.stderr
