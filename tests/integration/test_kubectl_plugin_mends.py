"""What doctor of `make plugin`'s file prints as a mend, run by bash: the finding is gone then.

A word in capitals stands for what only the user knows.
"""

import asyncio
import functools
import json
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dev.kubernetes import apiserver
from rlfleet_kubectl.core.names import OPERATOR_PODS
from tests.integration.conftest import ROOT, Fleet, Operator, Run, kubectl, until
from tests.integration.test_kubectl_plugin_care import (
    LEASE,
    checks,
    healthy,  # noqa: F401 - a fixture
    written,
)

pytestmark = pytest.mark.integration

Findings = dict[str, dict[str, Any]]
Doctor = Callable[[], Awaitable[Findings]]
Mend = Callable[..., Awaitable[None]]


@pytest.fixture
def ran(user: dict[str, str]) -> Callable[..., Awaitable[subprocess.CompletedProcess[str]]]:
    """Run a program as the user, in a thread: the hollow workers answer from this loop."""
    run = functools.partial(
        subprocess.run, env=user, capture_output=True, text=True, check=False, timeout=240
    )
    return functools.partial(asyncio.to_thread, run)


@pytest.fixture
def doctor(ran: Callable[..., Any], fleet: Fleet) -> Doctor:
    """Return the findings about the fleet, whatever doctor's exit status."""

    async def found() -> Findings:
        near = (f"--operator-namespace={fleet.namespace}", f"--namespace={fleet.namespace}")
        return checks(await ran(["kubectl", "rlf", "doctor", fleet.name, *near, "-o", "json"]))

    return found


@pytest.fixture
def mend(ran: Callable[..., Any], tmp_path: Path) -> Mend:
    """Run the command of a finding, with its words in capitals replaced."""

    async def run(finding: dict[str, Any], *, cwd: Path = tmp_path, **known: str) -> None:
        printed = finding["mend"]
        command = printed[printed.index("kubectl") if "kubectl" in printed else 0 :]
        command = command.partition(", or ")[0]
        for word, value in known.items():
            command = command.replace(word, value)
        done = await ran(["bash", "-euo", "pipefail", "-c", command], cwd=cwd)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"

    return run


async def are_gone(doctor: Doctor, *names: str) -> None:
    """Wait until doctor no longer has these findings."""

    async def is_so() -> bool:
        return not set(names) & set(await doctor())

    await until(is_so, describe=lambda: described(doctor))


async def described(doctor: Doctor) -> str:
    return json.dumps(await doctor(), indent=1)


async def test_what_is_broken_in_an_installation_is_mended_by_what_doctor_prints(
    plane: apiserver.ControlPlane,
    healthy: Fleet,  # noqa: F811 - a fixture
    doctor: Doctor,
    mend: Mend,
) -> None:
    here = functools.partial(kubectl, plane, f"--namespace={healthy.namespace}")
    here("delete", "rolebinding", LEASE)
    here("scale", "deploy", LEASE, "--replicas=0")
    here("delete", "secret", "qwen-admin")
    here("create", "secret", "generic", "qwen-admin", "--from-literal=token=")
    here("run", "qwen-2", "--image=other")
    await healthy.patch(replicas=3)
    found = await doctor()

    # helm would scale it too.
    await mend(found["OperatorScaledToZero"])
    await mend(found["OperatorAccess"], cwd=ROOT)
    await mend(found["TokenEmpty"])
    await mend(found["NameTaken"])
    await are_gone(doctor, "OperatorScaledToZero", "OperatorAccess", "TokenEmpty", "NameTaken")
    await healthy.synced()


async def test_a_claim_and_a_policy_that_are_missing_are_made_by_what_doctor_prints(
    plane: apiserver.ControlPlane, operator: Operator, fleet: Fleet, doctor: Doctor, mend: Mend
) -> None:
    here = functools.partial(kubectl, plane, f"--namespace={fleet.namespace}")
    here("run", "rlfleet-0", "--image=x", f"--labels={OPERATOR_PODS}")
    for kind in ("Ingress", "Egress"):
        here("apply", "-f", "-", stdin=json.dumps(closed(kind)))
    volume = {"persistentVolumeClaim": {"claimName": "checkpoints"}}
    await fleet.create(weightVersion="step-1", replicas=1, model=MODEL | {"volume": volume})

    async def has_pod() -> bool:
        return bool(await fleet.pods())

    await until(has_pod, describe=fleet.describe)
    found = await doctor()
    await mend(found["ClaimMissing"], SIZE="1Gi")
    await mend(found["PolicyBlocksSamplers"], NAMESPACE="samplers")
    # The first time for the workers' pods, then for the operator's.
    await mend(found["PolicyBlocksOperator"])
    await mend((await doctor())["PolicyBlocksOperator"])
    await are_gone(doctor, "ClaimMissing", "PolicyBlocksSamplers", "PolicyBlocksOperator")
    claim = json.loads(here("get", "pvc", "checkpoints", "-o", "json").stdout)
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]


MODEL = {"name": "qwen", "path": "/models/qwen"}


def closed(kind: str) -> dict[str, Any]:
    """Return a policy that lets no pod of its namespace receive, or none send."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": f"no-{kind.lower()}"},
        "spec": {"podSelector": {}, "policyTypes": [kind]},
    }


async def test_a_namespace_is_driven_after_what_doctor_prints(
    plane: apiserver.ControlPlane,
    healthy: Fleet,  # noqa: F811 - a fixture
    doctor: Doctor,
    mend: Mend,
) -> None:
    near, other = f"--namespace={healthy.namespace}", f"{healthy.namespace}-too"
    kubectl(plane, "create", "namespace", other)
    kubectl(plane, near, "set", "env", f"deploy/{LEASE}", f"RLFLEET_NAMESPACES={other}")
    found = await doctor()

    await mend(found["NamespaceNotDriven"], cwd=ROOT)
    await are_gone(doctor, "NamespaceNotDriven")
    for namespace in (healthy.namespace, other):
        kubectl(plane, f"--namespace={namespace}", "get", "rolebinding", LEASE)
    kubectl(plane, "delete", "namespace", other, "--wait=false")


async def test_a_held_rollout_gets_on_by_what_doctor_prints(
    healthy: Fleet,  # noqa: F811 - a fixture
    doctor: Doctor,
    mend: Mend,
    rlf: Run,
) -> None:
    async def is_held() -> bool:
        return "RolloutPaused" in await doctor()

    await rlf("pause", "qwen")
    await rlf("set-version", "qwen", "step-2")
    await until(is_held, describe=lambda: described(doctor))

    await mend((await doctor())["RolloutPaused"])
    assert (await healthy.synced())["serving"] == "step-2"


KEYS = ("tls.crt", "tls.key", "ca.crt")
SOURCE = {"url": "s3://training/run/{version}", "credentialsSecret": "store"}


async def test_a_secret_that_is_missing_or_lacks_a_key_is_made_by_what_doctor_prints(
    plane: apiserver.ControlPlane, fleet: Fleet, doctor: Doctor, mend: Mend, tmp_path: Path
) -> None:
    for key in KEYS:
        (tmp_path / key).write_text(f"{key}\n" * 40)
    (tmp_path / "credentials").write_text("AWS_ACCESS_KEY_ID=me\n")
    await fleet.create(sidecar={"tlsSecret": "tls"}, weights={"path": None, "source": SOURCE})
    here = functools.partial(kubectl, plane, f"--namespace={fleet.namespace}")

    found = await doctor()
    await mend(found["CredentialsMissing"], FILE="credentials")
    await mend(found["CertificateMissing"])
    await are_gone(doctor, "CredentialsMissing", "CertificateMissing")
    here("delete", "secret", "tls")
    # As `kubectl create secret tls` and some issuers make it.
    files = [f"--from-file={tmp_path / key}" for key in KEYS[:2]]
    here("create", "secret", "generic", "tls", "--type=kubernetes.io/tls", *files)
    await mend((await doctor())["CertificateMissing"])
    await are_gone(doctor, "CertificateMissing")
    held = json.loads(here("get", "secret", "tls", "-o", "json").stdout)["data"]
    assert set(held) == set(KEYS)


State = dict[str, Any]
How = tuple[State, State]
"""How a container is, and how it ended last."""


def pod(state: State, last: State) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a worker's pod whose engine is in a state, and its status."""
    engine = {"name": "engine", "image": "worker:1"}
    made = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "qwen-0", "labels": {"rlfleet.dev/fleet": "qwen"}},
        "spec": {"containers": [engine]},
    }
    more = {"imageID": "", "ready": False, "restartCount": 4, "state": state, "lastState": last}
    return made, {"phase": "Pending", "containerStatuses": [{**engine, **more}]}


CRASHED: How = (
    {"waiting": {"reason": "CrashLoopBackOff"}},
    {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
)
UNPULLED: How = ({"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}, {})
DENIED: How = ({"waiting": {"reason": "ErrImagePull", "message": "401 Unauthorized"}}, {})


@pytest.mark.parametrize(
    ("how", "check", "known", "field", "value"),
    [
        (CRASHED, "ContainerCrashes", {"SIZE": "4Gi"}, "engine.resources.limits.memory", "4Gi"),
        (UNPULLED, "ImageNotPulled", {"IMAGE": "worker:2"}, "engine.image", "worker:2"),
        (
            DENIED,
            "ImageNotPulled",
            {"SECRET": "pull"},
            "template.spec.imagePullSecrets.0.name",
            "pull",
        ),
    ],
)
async def test_the_api_server_accepts_the_patch_that_doctor_prints(
    plane: apiserver.ControlPlane,
    fleet: Fleet,
    doctor: Doctor,
    mend: Mend,
    how: How,
    check: str,
    known: dict[str, str],
    field: str,
    value: str,
) -> None:
    await fleet.create(weightVersion="step-1", replicas=1)
    made, status = pod(*how)
    kubectl(plane, f"--namespace={fleet.namespace}", "apply", "-f", "-", stdin=json.dumps(made))
    written(plane, fleet.namespace, "pod", "qwen-0", status)

    # The pod stays as it is: an operator that replaces it is not part of this.
    await mend((await doctor())[check], **known)
    found: Any = (await fleet.get())["spec"]
    for part in field.split("."):
        found = found[int(part) if part.isdigit() else part]
    assert found == value
