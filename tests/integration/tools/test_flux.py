"""examples/gitops/flux by Flux's own controllers: what they apply, wait for and report.

The source is a bucket of a real S3 server: Flux treats what lies in it as what lies in Git.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from obstore.store import S3Store

from dev.gitops import tools
from dev.kubernetes import apiserver
from dev.s3 import server
from dev.servers import Servers, accepts, free_ports
from tests.fakes import checkpoints
from tests.hollow import HollowNode
from tests.integration.conftest import ROOT, Fleet, Operator, kubectl, until
from tests.integration.stores.conftest import store_of
from tests.integration.tools.conftest import define
from tests.integration.tools.manifests import fleet_manifest

pytestmark = pytest.mark.integration
EXAMPLE = ROOT / "examples" / "gitops" / "flux" / "fleet.yaml"
BUCKET = "fleets"


class Flux:
    """The controllers, and the bucket that stands for Git."""

    def __init__(self, plane: apiserver.ControlPlane, namespace: str, source: S3Store) -> None:
        self._plane, self._namespace, self._source = plane, namespace, source

    def commit(self, **spec: Any) -> None:
        """Write the fleet's manifest."""
        text = fleet_manifest(self._namespace, **spec)
        self._source.put("qwen/fleet.yaml", text.encode())

    def apply(self, *objects: dict[str, Any]) -> None:
        """Apply objects as a user would."""
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl in the namespace of the test."""
        return kubectl(self._plane, f"-n={self._namespace}", *words, stdin=stdin).stdout

    async def reconciled(self, status: str, revision: str | None = None) -> dict[str, Any]:
        """Wait until the Kustomization is Ready, or is not; return it."""
        found: dict[str, Any] = {}

        async def is_so() -> bool:
            words = ("get", "kustomization", "qwen", "-o", "json")
            found.update(json.loads(await asyncio.to_thread(self.kubectl, *words)))
            seen = found.get("status", {})
            ready = {c["type"]: c["status"] for c in seen.get("conditions", ())}.get("Ready")
            return ready == status and revision in {None, seen.get("lastAttemptedRevision")}

        async def described() -> str:
            return json.dumps(found.get("status"), indent=1)

        await until(is_so, describe=described)
        return found

    async def newest(self) -> str:
        """Have Flux look at the source now; return its revision."""
        before = self._revision()
        now = str(asyncio.get_running_loop().time())
        words = ("annotate", "bucket/fleets", "--overwrite")
        self.kubectl(*words, f"reconcile.fluxcd.io/requestedAt={now}")

        async def is_new() -> bool:
            return await asyncio.to_thread(self._revision) != before

        await until(is_new)
        return self._revision()

    def _revision(self) -> str:
        words = ("get", "bucket", BUCKET, "-o", "jsonpath={.status.artifact.revision}")
        return self.kubectl(*words)


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[server.Server]:
    with server.running(tmp_path / "s3") as running:
        running.bucket(BUCKET)
        yield running


@pytest.fixture
def flux(
    plane: apiserver.ControlPlane,
    servers: Servers,
    namespace: str,
    tmp_path: Path,
    s3: server.Server,
) -> Flux:
    for name in ("source-controller", "kustomize-controller"):
        define(plane, (tools.controller(name) / "config/crd/bases").glob("*_*.yaml"))
    store, *others = free_ports(5)
    known = {"KUBECONFIG": str(plane.kubeconfig), "RUNTIME_NAMESPACE": namespace}
    listening = [f"--storage-addr=127.0.0.1:{store}", f"--storage-adv-addr=127.0.0.1:{store}"]
    (tmp_path / "artifacts").mkdir()
    listening += [f"--storage-path={tmp_path / 'artifacts'}"]
    waiting = ["--requeue-dependency=1s"]
    for name, own in (("source-controller", listening), ("kustomize-controller", waiting)):
        ports = [f"--metrics-addr=127.0.0.1:{others.pop()}"]
        ports += [f"--health-addr=127.0.0.1:{others.pop()}", "--watch-all-namespaces=false"]
        servers.start(name, [str(tools.path(name)), *ports, *own], **known)
    servers.wait(lambda: accepts(store))
    return Flux(plane, namespace, store_of(s3, BUCKET))


def bucket(s3: server.Server) -> list[dict[str, Any]]:
    """Return a Bucket and the Secret of its account."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "account"},
        "stringData": {"accesskey": s3.access_key, "secretkey": s3.secret_key},
    }
    spec = {
        "interval": "1m",
        "provider": "generic",
        "bucketName": BUCKET,
        "endpoint": s3.url.removeprefix("http://"),
        "insecure": True,
        "secretRef": {"name": "account"},
    }
    made = {
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "Bucket",
        "metadata": {"name": BUCKET},
        "spec": spec,
    }
    return [secret, made]


def kustomization(namespace: str) -> dict[str, Any]:
    """Return the example for a namespace, with a bucket for its repository."""
    made: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    made["metadata"]["namespace"] = namespace
    made["spec"]["sourceRef"] = {"kind": "Bucket", "name": BUCKET}
    made["spec"]["healthChecks"][0]["namespace"] = namespace
    made["spec"]["retryInterval"] = "5s"
    return made


async def test_flux_waits_for_versions_and_leaves_what_a_trainer_and_an_autoscaler_set(
    flux: Flux, fleet: Fleet, operator: Operator, node: HollowNode, weights: Path, s3: server.Server
) -> None:
    flux.commit(rollout={"maxUnavailable": 1})
    flux.apply(*bucket(s3), kustomization(fleet.namespace))
    await until(lambda: _is_there(fleet))
    await fleet.patch(weightVersion="step-1", replicas=1)
    await flux.reconciled("True")
    assert (await fleet.synced())["serving"] == "step-1"

    # A trainer's version: the next commit changes something else, and the version stays.
    await fleet.patch(weightVersion="step-2")
    await fleet.synced()
    flux.commit(rollout={"maxUnavailable": 1, "pauseMode": "Wait"})
    await flux.reconciled("True", await flux.newest())
    spec = (await fleet.get())["spec"]
    assert (spec["weightVersion"], spec["replicas"]) == ("step-2", 1)
    assert spec["rollout"]["pauseMode"] == "Wait"

    # A bad version in Git: Flux says that it failed, long before its timeout of 40 minutes.
    checkpoints.spoil(checkpoints.write_version(weights, "bad", seed=9), "an infinity")
    flux.commit(rollout={"maxUnavailable": 1}, weightVersion="bad")
    failed = await flux.reconciled("False", await flux.newest())
    (ready,) = (c for c in failed["status"]["conditions"] if c["type"] == "Ready")
    assert ready["reason"] == "HealthCheckFailed"
    assert "RLInferenceFleet" in ready["message"]
    assert (await fleet.status())["serving"] == "step-2"

    # A good one in Git after it.
    flux.commit(rollout={"maxUnavailable": 1}, weightVersion="step-3")
    await flux.reconciled("True", await flux.newest())
    assert (await fleet.status())["serving"] == "step-3"

    # What is no longer in Git is pruned.
    flux.kubectl("delete", "kustomization", "qwen", "--wait=true", "--timeout=60s")
    await until(lambda: _is_gone(flux))


async def _is_there(fleet: Fleet) -> bool:
    words = await fleet.kube.get(
        f"/apis/rlfleet.dev/v1alpha1/namespaces/{fleet.namespace}/rlinferencefleets"
    )
    return bool(words["items"])


async def _is_gone(flux: Flux) -> bool:
    return await asyncio.to_thread(flux.kubectl, "get", "rlf,pods", "-o", "name") == ""
