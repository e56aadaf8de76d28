"""examples/gitops/argocd and deploy/argocd by Argo CD itself: health, self-heal and actions.

Its controller, repository server and API server run outside of the cluster; a person's commands are
those of its command line.
"""

import asyncio
import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.environment import everything
from dev.gitops import tools
from dev.kubernetes import apiserver
from dev.servers import Servers, accepts, free_ports
from tests.fakes import checkpoints
from tests.hollow import HollowNode
from tests.integration.conftest import ROOT, Fleet, Operator, kubectl, until
from tests.integration.tools.conftest import define
from tests.integration.tools.manifests import fleet_manifest

pytestmark = pytest.mark.integration
APPLICATION = ROOT / "examples" / "gitops" / "argocd" / "application.yaml"
CONFIG = ROOT / "deploy" / "argocd" / "argocd-cm.yaml"
NAMESPACE = "argocd"
_LIKE_A_POD = {"ARGOCD_FAKE_IN_CLUSTER": "true", "ARGOCD_GPG_ENABLED": "false"}


class ArgoCD:
    """Argo CD of one test, and the repository that it applies."""

    def __init__(self, plane: apiserver.ControlPlane, url: str, repository: Path) -> None:
        self._plane, self._url, self.repository = plane, url, repository

    def commit(self, namespace: str, **spec: Any) -> None:
        """Commit the fleet's manifest."""
        folder = self.repository / "qwen"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "fleet.yaml").write_text(fleet_manifest(namespace, **spec))
        if not (self.repository / ".git").exists():
            self._git("init", "--initial-branch=main")
        self._git("add", ".")
        author = ("-c", "user.name=test", "-c", "user.email=test@example.com")
        self._git(*author, "commit", "--message=change", "--allow-empty")

    def _git(self, *words: str) -> None:
        subprocess.run(["git", *words], cwd=self.repository, check=True, capture_output=True)

    def apply(self, namespace: str) -> None:
        """Apply the example, with this repository and namespace."""
        made = yaml.safe_load(APPLICATION.read_text())
        made["spec"]["source"]["repoURL"] = f"file://{self.repository}"
        made["spec"]["destination"]["namespace"] = namespace
        # Deletes the fleet with the Application, as `argocd app create` would ask for.
        made["metadata"]["finalizers"] = ["resources-finalizer.argocd.argoproj.io"]
        kubectl(self._plane, "apply", "-f", "-", stdin=yaml.safe_dump(made))

    def delete(self) -> None:
        """Delete the Application and what it has applied."""
        words = ("delete", "application", "qwen", "--timeout=60s")
        kubectl(self._plane, f"-n={NAMESPACE}", *words)

    def refresh(self) -> None:
        """Have Argo CD look at the repository now."""
        words = ("annotate", "application", "qwen", "argocd.argoproj.io/refresh=normal")
        kubectl(self._plane, f"-n={NAMESPACE}", *words, "--overwrite")

    def application(self) -> dict[str, Any]:
        """Return the Application's status."""
        words = ("get", "application", "qwen", "-o", "json")
        found = json.loads(kubectl(self._plane, f"-n={NAMESPACE}", *words).stdout)
        status: dict[str, Any] = found.get("status", {})
        return status

    def command(self, *words: str) -> str:
        """Run Argo CD's command line."""
        argv = [str(tools.path("argocd")), *words, f"--server={self._url}", "--plaintext"]
        done = subprocess.run(
            argv,
            env={**everything(), "HOME": str(self.repository)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def act(self, action: str) -> None:
        """Run an action, as its button does."""
        words = ("app", "actions", "run", "qwen", action, "--kind=RLInferenceFleet")
        await asyncio.to_thread(self.command, *words, "--resource-name=qwen")

    async def offered(self) -> set[str]:
        """Return the actions that are offered now."""
        words = ("app", "actions", "list", "qwen", "--kind=RLInferenceFleet", "--out=json")
        found = json.loads(await asyncio.to_thread(self.command, *words))
        return {one["Action"] for one in found if not one["Disabled"]}

    async def becomes(self, health: str, sync: str = "Synced") -> dict[str, Any]:
        """Wait until Argo CD shows this; return the fleet's entry."""

        async def is_so() -> bool:
            status = await asyncio.to_thread(self.application)
            seen = (status.get("health", {}).get("status"), status.get("sync", {}).get("status"))
            return seen == (health, sync)

        async def described() -> str:
            differs = self.command("app", "diff", "qwen", "--exit-code=false")
            return f"{json.dumps(self.application(), indent=1)[-4000:]}\n{differs}"

        await until(is_so, describe=described)
        tree = json.loads(await asyncio.to_thread(self.command, "app", "get", "qwen", "-o=json"))
        (fleet,) = tree["status"]["resources"]
        return dict(fleet)


@pytest.fixture
def argocd(plane: apiserver.ControlPlane, servers: Servers, tmp_path: Path) -> ArgoCD:
    define(plane, (tools.ARGO_CD.folder() / "manifests/crds").glob("*-crd.yaml"))
    kubectl(plane, "create", "namespace", NAMESPACE, check=False)
    base = tools.ARGO_CD.folder() / "manifests" / "base" / "config"
    for name in sorted(path.name for path in base.glob("argocd-*.yaml")):
        kubectl(plane, f"-n={NAMESPACE}", "apply", "-f", str(base / name))
    kubectl(plane, "apply", "--server-side", "-f", str(CONFIG))

    redis, repository, api, *others = free_ports(6)
    servers.start("redis", ["redis-server", f"--port {redis}", "--save", "", "--bind", "127.0.0.1"])
    servers.wait(lambda: accepts(redis))
    for folder in ("tls", "ssh", "gpg", "cmp"):
        (tmp_path / folder).mkdir()
    known = _LIKE_A_POD | {
        "KUBECONFIG": str(plane.kubeconfig),
        "HOME": str(tmp_path),
        "ARGOCD_TLS_DATA_PATH": str(tmp_path / "tls"),
        "ARGOCD_SSH_DATA_PATH": str(tmp_path / "ssh"),
        "ARGOCD_GNUPGHOME": str(tmp_path / "gpg"),
        "ARGOCD_PLUGINSOCKFILEPATH": str(tmp_path / "cmp"),
    }
    cached = f"--redis=127.0.0.1:{redis}"
    asked = [f"--repo-server=127.0.0.1:{repository}", "--repo-server-plaintext", cached]
    asked += [f"--namespace={NAMESPACE}"]
    parts = {
        "repo-server": [f"--port={repository}", "--disable-tls", cached],
        "server": [*asked, "--insecure", "--disable-auth", f"--port={api}", "--dex-server="],
        "application-controller": asked,
    }
    for name, words in parts.items():
        # The API server makes a key at its first start, which the controller reads at its own.
        argv = [str(tools.path("argocd")), *words, f"--metrics-port={(metrics := others.pop())}"]
        servers.start(name, argv, ARGOCD_BINARY_NAME=f"argocd-{name}", **known)
        servers.wait(partial(accepts, metrics))
    servers.wait(lambda: accepts(repository) and accepts(api))
    return ArgoCD(plane, f"127.0.0.1:{api}", tmp_path / "repository")


async def test_argo_cd_shows_a_fleet_as_it_is_and_leaves_what_others_set(
    argocd: ArgoCD, fleet: Fleet, operator: Operator, node: HollowNode, weights: Path
) -> None:
    declared = {"replicas": 1, "weightVersion": "step-1"}
    argocd.commit(fleet.namespace, **declared)
    argocd.apply(fleet.namespace)
    await argocd.becomes("Healthy")
    assert (await fleet.synced())["serving"] == "step-1"

    # A trainer's version stays, though Git has another and self-heal is on.
    await fleet.patch(weightVersion="step-2")
    await fleet.synced()
    # Git has no `rollout`: Argo CD sends its defaults with this sync, because they are ignored.
    argocd.commit(fleet.namespace, **declared, historyLimit=5)
    argocd.refresh()
    await until(lambda: _keeps(fleet, 5))
    await argocd.becomes("Healthy")
    assert (await fleet.synced())["serving"] == "step-2"

    await _steered(argocd, fleet)
    checkpoints.spoil(checkpoints.write_version(weights, "bad", seed=9), "an infinity")
    await _refused(argocd, fleet)

    argocd.delete()
    await until(lambda: _has_no_pods(fleet))


async def _steered(argocd: ArgoCD, fleet: Fleet) -> None:
    """Roll back, hold and continue by the buttons."""
    assert await argocd.offered() == {"pause", "rollback"}
    await argocd.act("rollback")
    await until(lambda: _wants(fleet, "step-1"))
    await fleet.synced()
    await argocd.becomes("Healthy")

    await argocd.act("pause")
    await until(lambda: _is_paused(fleet))
    await fleet.patch(weightVersion="step-3")
    held = await argocd.becomes("Suspended")
    assert "paused" in held["health"]["message"]
    assert "resume" in await argocd.offered()
    await argocd.act("resume")
    assert (await fleet.synced())["serving"] == "step-3"
    await argocd.becomes("Healthy")


async def _refused(argocd: ArgoCD, fleet: Fleet) -> None:
    """Ask for a bad version, and abort it by its button."""
    await fleet.patch(weightVersion="bad")
    stalled = await argocd.becomes("Degraded")
    assert "CheckpointInvalid" in stalled["health"]["message"]
    assert {"retry", "abort"} <= await argocd.offered()
    await argocd.act("abort")
    await until(lambda: _wants(fleet, "step-3"))
    await fleet.synced()
    await argocd.becomes("Healthy")


async def _wants(fleet: Fleet, version: str) -> bool:
    return bool((await fleet.get())["spec"].get("weightVersion") == version)


async def _keeps(fleet: Fleet, changes: int) -> bool:
    return bool((await fleet.get())["spec"].get("historyLimit") == changes)


async def _is_paused(fleet: Fleet) -> bool:
    return bool((await fleet.get())["spec"]["rollout"]["paused"])


async def _has_no_pods(fleet: Fleet) -> bool:
    return await fleet.pods() == {}
