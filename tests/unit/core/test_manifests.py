"""The objects of a fleet."""

from typing import Any

import pytest

from rlfleet_operator.core import manifests
from rlfleet_operator.core.world import TEMPLATE_ANNOTATION
from tests import fleets

DEFAULTS = manifests.Defaults(worker_image="worker:1")


def pod(**spec: Any) -> dict[str, Any]:
    return manifests.pod(fleets.fleet(spec), 0, DEFAULTS)


def test_a_pod_with_a_template_carries_the_hash_that_the_fleet_has() -> None:
    fleet = fleets.fleet({"template": {"metadata": {"annotations": {"team": "rl"}}}})

    made = manifests.pod(fleet, 0, DEFAULTS)
    again = manifests.pod(fleet, 0, DEFAULTS)

    assert made == again
    assert made["metadata"]["annotations"] == {
        "team": "rl",
        TEMPLATE_ANNOTATION: manifests.template_hash(fleet),
    }


@pytest.mark.parametrize(
    "spec",
    [
        {"replicas": 9},
        {"weightVersion": "step-2"},
        {"rollout": {"maxUnavailable": 3}},
        {"statusWorkerLimit": 1},
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_what_is_no_matter_of_pods_replaces_none(spec: dict[str, Any]) -> None:
    assert manifests.template_hash(fleets.fleet(spec)) == manifests.template_hash(fleets.fleet())


@pytest.mark.parametrize(
    "spec",
    [
        {"engine": {"args": ["--max-model-len=8"]}},
        {"engine": {"image": "other"}},
        {"model": {"name": "other", "path": "/m"}},
        {"weights": {"path": "/other/{version}"}},
        {"template": {"spec": {"nodeSelector": {"a": "b"}}}},
    ],
    ids=str,
)
def test_what_pods_are_made_of_changes_the_hash(spec: dict[str, Any]) -> None:
    assert manifests.template_hash(fleets.fleet(spec)) != manifests.template_hash(fleets.fleet())


def test_a_pod_is_what_pod_security_restricted_admits() -> None:
    spec = pod()["spec"]

    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    for container in [*spec["initContainers"], *spec["containers"]]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_sidecar_is_a_native_one() -> None:
    (sidecar,) = pod()["spec"]["initContainers"]

    assert (sidecar["name"], sidecar["restartPolicy"]) == ("sidecar", "Always")


def test_the_sidecar_is_told_whose_commands_are_meant_for_it() -> None:
    (sidecar,) = pod()["spec"]["initContainers"]
    told = {one["name"]: one for one in sidecar["env"]}

    assert told["RLFLEET_FLEET_UID"]["value"] == "f-1"
    assert told["RLFLEET_POD_UID"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.uid"


def test_the_weights_are_mounted_where_their_versions_lie() -> None:
    volume = {"persistentVolumeClaim": {"claimName": "w"}}
    spec = pod(weights={"path": "/w/run/{version}/weight", "volume": volume})["spec"]

    mounts = {m["name"]: m["mountPath"] for m in spec["containers"][0]["volumeMounts"]}
    assert mounts["weights"] == "/w/run"
    assert {"name": "weights", **volume} in spec["volumes"]


def test_a_template_merges_named_things_and_renames_nothing() -> None:
    template = {
        "metadata": {"name": "mine", "labels": {"team": "rl"}},
        "spec": {
            "nodeSelector": {"gpu": "h200"},
            "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "mine"}],
            "containers": [{"name": "engine", "env": [{"name": "HOME", "value": "/mine"}]}],
        },
    }
    made = pod(template=template)

    assert made["metadata"]["name"] == "qwen-0"
    assert made["metadata"]["labels"]["team"] == "rl"
    assert made["spec"]["nodeSelector"] == {"gpu": "h200"}
    volumes = {v["name"]: v for v in made["spec"]["volumes"]}
    assert volumes["tmp"]["emptyDir"] == {"sizeLimit": "1Gi"}
    assert "mine" in volumes
    (engine,) = made["spec"]["containers"]
    assert [e["value"] for e in engine["env"] if e["name"] == "HOME"] == ["/mine"]
    assert len(engine["env"]) > 1


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/weights/{version}", "/weights"),
        ("/a/b/{version}/weight", "/a/b"),
        ("/a/step-{version}", "/a"),
    ],
)
def test_the_root_of_the_weights_is_above_the_version(path: str, root: str) -> None:
    assert manifests.weights_root(path) == root
