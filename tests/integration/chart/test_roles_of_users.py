"""The roles for users as a real API server grants them, alone and through Kubernetes' own."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from dev.kubernetes import apiserver
from tests.integration.chart.rendering import rendered
from tests.integration.conftest import CONTROLLERS, ROOT, WAIT_S, kubectl

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

FLEETS = "rlinferencefleets.rlfleet.dev"
READ = {"get", "list", "watch"}
OWN = READ | {"create", "update", "patch", "delete", "deletecollection"}
RIGHTS = {
    "rlfleet-viewer": READ,
    "rlfleet-trainer": READ | {"patch"},
    "rlfleet-owner": OWN,
    "view": READ,
    "edit": OWN,
    "admin": OWN,
}
OWNED_BY_NOTHING = """
    {"metadata": {"ownerReferences":
        [{"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "none"}]}}"""
CHANGES = "a trainer may change spec.weightVersion and its weights.step, runId and digest only"
FLEET = """
apiVersion: rlfleet.dev/v1alpha1
kind: RLInferenceFleet
metadata: {name: qwen}
spec:
  model: {name: qwen, path: /models/qwen}
  weights: {path: '/weights/{version}'}
  engine: {resources: {requests: {cpu: 2}}}
"""


@pytest.fixture(scope="module")
def granted() -> Iterator[apiserver.ControlPlane]:
    """A control plane with the chart's roles, each bound to a user of its name in `default`."""
    with apiserver.running(controllers=(*CONTROLLERS, *apiserver.AGGREGATION)) as plane:
        kubectl(plane, "apply", f"--filename={ROOT / 'crds'}")
        kubectl(plane, "apply", "--filename=-", stdin=rendered("--namespace=default"))
        for role in RIGHTS:
            words = (f"--clusterrole={role}", f"--user={role}")
            kubectl(plane, "create", "rolebinding", role, *words)
        for role in ("view", "edit", "admin"):
            _await_aggregation(plane, role)
        kubectl(plane, "apply", "--filename=-", stdin=FLEET)
        yield plane


@pytest.mark.parametrize("role", RIGHTS)
def test_a_role_has_these_verbs_on_fleets_in_its_namespace(
    granted: apiserver.ControlPlane, role: str
) -> None:
    verbs = sorted(OWN)
    allowed = _allowed(granted, role, *((verb, "rlinferencefleets") for verb in verbs))

    assert {verb for verb, may in zip(verbs, allowed, strict=True) if may} == RIGHTS[role]
    assert _allowed(granted, role, ("get", "rlinferencefleets"), namespace="kube-system") == [False]


@pytest.mark.parametrize("role", RIGHTS)
def test_no_role_writes_status_and_only_owners_scale(
    granted: apiserver.ControlPlane, role: str
) -> None:
    status, scale = "rlinferencefleets/status", "rlinferencefleets/scale"
    asked = (("get", status), ("patch", status), ("update", status), ("update", scale))

    assert _allowed(granted, role, *asked) == [True, False, False, RIGHTS[role] == OWN]


@pytest.mark.parametrize("role", ["rlfleet-viewer", "rlfleet-trainer", "rlfleet-owner"])
def test_no_role_of_ours_reads_secrets_or_touches_pods(
    granted: apiserver.ControlPlane, role: str
) -> None:
    asked = (("get", "secrets"), ("list", "secrets"), ("create", "pods"), ("create", "pods/exec"))

    assert _allowed(granted, role, *asked) == [False] * len(asked)


def test_a_trainer_changes_the_version(granted: apiserver.ControlPlane) -> None:
    assert "patched" in _patch(granted, "rlfleet-trainer", '{"spec": {"weightVersion": "step-1"}}')
    assert "patched" in _patch(granted, "rlfleet-trainer", '{"spec": {"weightVersion": null}}')


def test_a_trainer_changes_what_says_more_of_the_version(
    granted: apiserver.ControlPlane,
) -> None:
    told = {"step": 2, "runId": "a", "digest": f"sha256:{'0' * 64}"}
    patch = json.dumps({"spec": {"weightVersion": "step-2", "weights": told}})
    unset = json.dumps({"spec": {"weights": dict.fromkeys(told)}})

    assert "patched" in _patch(granted, "rlfleet-trainer", patch)
    assert "patched" in _patch(granted, "rlfleet-trainer", unset)


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ('{"spec": {"replicas": 5}}', CHANGES),
        ('{"spec": {"engine": {"image": "mine"}}}', CHANGES),
        ('{"spec": {"engine": {"resources": null}}}', CHANGES),
        (
            '{"spec": {"weightVersion": "step-2", "template": {"spec": {"hostPID": true}}}}',
            CHANGES,
        ),
        ('{"spec": {"weights": {"step": 3, "path": "/other/{version}"}}}', CHANGES),
        ('{"spec": {"weights": {"cache": {"enabled": false}}}}', CHANGES),
        ('{"metadata": {"finalizers": ["a.b/c"]}}', "neither metadata.ownerReferences nor"),
        (
            OWNED_BY_NOTHING,
            # The admission plugin OwnerReferencesPermissionEnforcement answers first.
            "cannot set an ownerRef",
        ),
    ],
)
def test_a_trainer_changes_nothing_else(
    granted: apiserver.ControlPlane, patch: str, message: str
) -> None:
    assert message in _patch(granted, "rlfleet-trainer", patch)
    assert "patched" in _patch(granted, "rlfleet-owner", patch, "--dry-run=server")


def test_a_trainer_makes_no_fleet_by_an_apply(granted: apiserver.ControlPlane) -> None:
    """Server-side apply is a patch, which makes an object that is not there."""
    other = FLEET.replace("name: qwen}\nspec", "name: other}\nspec")
    words = ("apply", "--server-side", "--as=rlfleet-trainer", "--filename=-")

    done = kubectl(granted, *words, stdin=other, check=False)

    # 1.30 names no further cause where RBAC denies.
    assert '"other" is forbidden' in done.stderr
    assert "ValidatingAdmissionPolicy" not in done.stderr


def _allowed(
    plane: apiserver.ControlPlane, user: str, *asked: tuple[str, str], namespace: str = "default"
) -> list[bool]:
    """Return what ``kubectl auth can-i VERB RESOURCE --as=USER`` says, for many at once."""
    reviews = [_review(user, verb, resource, namespace) for verb, resource in asked]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": reviews})
    answer = r'--output=jsonpath={.status.allowed}{"\n"}'
    done = kubectl(plane, "create", "--filename=-", answer, stdin=text)
    return [line == "true" for line in done.stdout.splitlines()]


def _review(user: str, verb: str, resource: str, namespace: str) -> dict[str, Any]:
    name, _, subresource = resource.partition("/")
    about = {"namespace": namespace, "verb": verb, "resource": name, "subresource": subresource}
    about["group"] = "rlfleet.dev" if name == "rlinferencefleets" else ""
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    return {**kind, "spec": {"user": user, "resourceAttributes": about}}


def _patch(plane: apiserver.ControlPlane, user: str, patch: str, *words: str) -> str:
    told = ("patch", FLEETS, "qwen", "--type=merge", f"--patch={patch}", f"--as={user}", *words)
    done = kubectl(plane, *told, check=False)
    return done.stdout + done.stderr


def _await_aggregation(plane: apiserver.ControlPlane, role: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while _allowed(plane, role, ("get", "rlinferencefleets")) == [False]:
        assert time.monotonic() < deadline, f"not in time: the role {role} is aggregated"
        time.sleep(0.2)
