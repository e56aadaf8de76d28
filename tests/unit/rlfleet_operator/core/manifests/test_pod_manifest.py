"""The objects of a fleet."""

import json
import re
from typing import Any

import pytest

from rlfleet_contract.worker.selftest import SelfTest
from rlfleet_operator.core.manifests import pod_manifest
from rlfleet_operator.core.manifests.owned_objects import UnusableTemplateError
from rlfleet_operator.core.model.world import (
    FLEET_LABEL,
    ORDINAL_LABEL,
    READINESS_GATE,
    TEMPLATE_ANNOTATION,
)
from tests import fleets

DEFAULTS = pod_manifest.Defaults(worker_image="worker:1")
OUR_GATE = {"conditionType": READINESS_GATE}
THEIR_GATE = {"conditionType": "example.com/warm"}


KEY = {"name": "VLLM_API_KEY", "value": "k"}


def engine(**fields: Any) -> dict[str, Any]:
    """Return a template that lays these fields over the engine's container."""
    return {"spec": {"containers": [{"name": "engine", **fields}]}}


def pod(**spec: Any) -> dict[str, Any]:
    return pod_manifest.pod(fleets.fleet(spec), 0, DEFAULTS)


def test_a_pod_with_a_template_carries_the_hash_that_the_fleet_has() -> None:
    fleet = fleets.fleet({"template": {"metadata": {"annotations": {"team": "rl"}}}})

    made = pod_manifest.pod(fleet, 0, DEFAULTS)
    again = pod_manifest.pod(fleet, 0, DEFAULTS)

    assert made == again
    assert made["metadata"]["annotations"] == {
        "team": "rl",
        TEMPLATE_ANNOTATION: pod_manifest.template_hash(fleet),
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
    assert pod_manifest.template_hash(fleets.fleet(spec)) == pod_manifest.template_hash(
        fleets.fleet()
    )


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
    assert pod_manifest.template_hash(fleets.fleet(spec)) != pod_manifest.template_hash(
        fleets.fleet()
    )


def test_a_default_that_is_written_out_is_no_change_and_another_spelling_of_a_size_is() -> None:
    def digest(**engine: Any) -> str:
        return pod_manifest.template_hash(fleets.fleet({"engine": engine}))

    assert digest() == digest(sharedMemory="2Gi", tensorParallelSize=1)
    assert digest() != digest(sharedMemory="2048Mi")


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


def test_silence_takes_a_sidecar_out_of_traffic_late_and_before_its_restart() -> None:
    """An engine that is gone it reports at once."""
    sidecar = pod()["spec"]["initContainers"][0]
    ready, live = sidecar["readinessProbe"], sidecar["livenessProbe"]

    assert ready["failureThreshold"] == 1
    assert ready["periodSeconds"] <= 2
    assert 10 < ready["timeoutSeconds"] < live["periodSeconds"] * live["failureThreshold"]


def test_an_engine_s_process_1_is_its_own_whatever_the_template_says() -> None:
    """A restart of the engine is known by its own process 1."""
    made = pod(template={"spec": {"shareProcessNamespace": True, "hostPID": True}})

    assert not made["spec"]["shareProcessNamespace"]
    assert not made["spec"]["hostPID"]


def test_the_sidecar_knows_its_fleet_and_its_pod() -> None:
    (sidecar,) = pod()["spec"]["initContainers"]
    told = {one["name"]: one for one in sidecar["env"]}

    assert told["RLFLEET_FLEET_UID"]["value"] == "f-1"
    assert told["RLFLEET_POD_UID"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.uid"


def test_both_containers_know_what_their_log_lines_are_named_by() -> None:
    spec = pod()["spec"]

    for container in [*spec["initContainers"], *spec["containers"]]:
        told = {one["name"]: one for one in container["env"]}
        assert told["RLFLEET_NAMESPACE"]["value"] == "rl"
        assert told["RLFLEET_FLEET"]["value"] == "qwen"
        assert told["RLFLEET_WORKER"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"


def test_the_weights_are_mounted_where_their_versions_lie() -> None:
    volume = {"persistentVolumeClaim": {"claimName": "w"}}
    spec = pod(weights={"path": "/w/run/{version}/weight", "volume": volume})["spec"]

    mounts = {m["name"]: m["mountPath"] for m in spec["containers"][0]["volumeMounts"]}
    assert mounts["weights"] == "/w/run"
    assert {"name": "weights", **volume} in spec["volumes"]


@pytest.mark.parametrize(
    ("gates", "expected"),
    [
        (None, [OUR_GATE]),
        ([], [OUR_GATE]),
        ([THEIR_GATE], [OUR_GATE, THEIR_GATE]),
        ([THEIR_GATE, OUR_GATE], [THEIR_GATE, OUR_GATE]),
        ("x", "x"),
    ],
    ids=["null", "none", "another", "both", "what the API server refuses"],
)
def test_no_template_takes_the_gate_by_which_a_worker_is_ready(gates: Any, expected: Any) -> None:
    assert pod(template={"spec": {"readinessGates": gates}})["spec"]["readinessGates"] == expected


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


VOLUME = {"persistentVolumeClaim": {"claimName": "w"}}
SHM = {"name": "shm", "mountPath": "/dev/shm"}  # noqa: S108 - an emptyDir of the pod
TMP = {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108 - the same
CACHE = {"name": "cache", "mountPath": "/var/cache/rlfleet", "readOnly": True}
WEIGHTS = {"name": "weights", "mountPath": "/weights", "readOnly": True}
MINE = {"name": "mine", "mountPath": "/mine"}


def with_mounts(*mounts: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of a fleet whose weights are mounted, as these mounts are, in its engine."""
    weights = {"path": "/weights/{version}", "volume": VOLUME}
    return {"weights": weights, "template": engine(volumeMounts=[*mounts])}


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        (
            [{"name": "tmp", "mountPath": "/scratch", "subPath": "c"}],
            [
                *(SHM, TMP, CACHE, WEIGHTS),
                {"name": "tmp", "mountPath": "/scratch", "subPath": "c"},
            ],
        ),
        (
            [TMP, {"name": "tmp", "mountPath": "/scratch"}],
            [SHM, TMP, CACHE, WEIGHTS, {"name": "tmp", "mountPath": "/scratch"}],
        ),
        (
            [MINE, MINE | {"mountPath": "/also"}],
            [SHM, TMP, CACHE, WEIGHTS, MINE, MINE | {"mountPath": "/also"}],
        ),
        (
            [TMP | {"name": "mine"}, {"name": "mine", "mountPath": "/weights", "subPath": "w"}],
            [
                *(SHM, TMP | {"name": "mine"}, CACHE),
                WEIGHTS | {"name": "mine", "subPath": "w"},
            ],
        ),
    ],
    ids=["ours twice", "ours as it is, and again", "theirs twice", "theirs in the place of ours"],
)
def test_a_volume_is_mounted_at_each_path_of_a_template(
    mounts: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> None:
    made = pod(**with_mounts(*mounts))["spec"]

    assert container(made, "engine")["volumeMounts"] == expected


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        ([], [SHM, TMP, CACHE, WEIGHTS]),
        ([MINE], [SHM, TMP, CACHE, WEIGHTS, MINE]),
        ([{"name": "tmp", "subPath": "t"}], [SHM, TMP | {"subPath": "t"}, CACHE, WEIGHTS]),
        (
            [MINE, {"name": "weights", "mountPath": "/weights/", "readOnly": False}],
            [
                *(SHM, TMP, CACHE),
                {"name": "weights", "mountPath": "/weights/", "readOnly": False},
                MINE,
            ],
        ),
    ],
    ids=["none", "another", "ours, without its path", "ours, with its path"],
)
def test_a_template_that_mounts_each_volume_once_makes_the_pods_it_made(
    mounts: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> None:
    made = pod(**with_mounts(*mounts))
    plain = pod(**with_mounts())
    assert container(made["spec"], "engine").pop("volumeMounts") == expected

    for one in (made, plain):
        one["metadata"].pop("annotations")
    container(plain["spec"], "engine").pop("volumeMounts")
    assert made == plain


def test_no_merge_of_mounts_replaces_a_pod() -> None:
    """What a pod is compared by has the template as it was written, in every release."""
    fleet = fleets.fleet(with_mounts(TMP, MINE))

    assert pod_manifest.template_hash(fleet) == "169f23086cb6a223"


@pytest.mark.parametrize(
    "labels",
    [
        None,
        {FLEET_LABEL: None, ORDINAL_LABEL: None},
        {FLEET_LABEL: "other", ORDINAL_LABEL: "7", "team": "rl"},
    ],
    ids=["all are removed", "ours are removed", "ours are others"],
)
def test_no_template_takes_the_labels_by_which_a_pod_is_found(labels: Any) -> None:
    made = pod(template={"metadata": {"labels": labels, "annotations": None}})

    assert made["metadata"]["labels"].items() >= {FLEET_LABEL: "qwen", ORDINAL_LABEL: "0"}.items()
    assert made["metadata"]["labels"].get("team") == (labels or {}).get("team")
    assert TEMPLATE_ANNOTATION in made["metadata"]["annotations"]


@pytest.mark.parametrize(
    "spec",
    [
        {"engine": {"extraEnv": [KEY]}},
        {"template": engine(env=[KEY])},
        {"template": engine(envFrom=[{"secretRef": {"name": "samplers"}}])},
    ],
    ids=["extraEnv", "env", "envFrom"],
)
def test_a_key_for_samplers_is_the_engine_s_wherever_it_comes_from(spec: dict[str, Any]) -> None:
    (made,) = pod(**spec)["spec"]["containers"]

    assert KEY in made["env"] or made["envFrom"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"template": {"metadata": "x"}}, "spec.template.metadata: got 'x'"),
        ({"template": {"metadata": {"labels": []}}}, "spec.template.metadata.labels: got []"),
        ({"template": {"metadata": {"annotations": []}}}, "spec.template.metadata.annotations"),
        ({"template": {"spec": "x"}}, "spec.template.spec: got 'x'"),
        ({"weights": {"path": "/w/{version}", "cache": {"size": -1}}}, "spec.weights.cache.size"),
        (
            {"weights": {"path": "/w/{version}", "cache": {"size": "1e999999"}}},
            "spec.weights.cache.size",
        ),
        ({"weights": {"path": "/w/{version}", "cache": {"size": 0}}}, "spec.weights.cache.size"),
        ({"weights": {"path": "/w/{version}", "cache": {"size": "0Gi"}}}, "expected more than 0"),
        ({"weights": {"path": "/w/{version}", "markers": [""]}}, "weights.markers: got ''"),
        (
            {"weights": {"path": "/w/{version}", "markers": ["a/b"]}},
            "weights.markers: got 'a/b'",
        ),
        (
            {"weights": {"path": "/w/{version}", "markers": ["a,b"]}},
            "weights.markers: got 'a,b'",
        ),
        (
            {"weights": {"path": "/w/{version}", "markers": [".."]}},
            "weights.markers: got '..'",
        ),
        ({"template": engine(args=["--api_key=k"])}, "--api-key"),
        ({"template": engine(args=["--api-key", "k"])}, "--api-key"),
    ],
    ids=str,
)
def test_what_no_pod_can_be_made_of_is_refused_by_the_field_s_name(
    spec: dict[str, Any], field: str
) -> None:
    """The API server refuses most of it, but not in a fleet that was there before the rule."""
    with pytest.raises(UnusableTemplateError, match=re.escape(field)):
        pod(**spec)


@pytest.mark.parametrize(
    "template",
    [
        {"metadata": None, "spec": None},
        {"metadata": {"labels": None, "annotations": None}},
    ],
    ids=str,
)
def test_null_in_a_template_is_nothing(template: dict[str, Any]) -> None:
    made, least = pod(template=template), pod()
    del made["metadata"]["annotations"], least["metadata"]["annotations"]

    assert made == least


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/weights/{version}", "/weights"),
        ("/a/b/{version}/weight", "/a/b"),
        ("/a/step-{version}", "/a"),
    ],
)
def test_the_root_of_the_weights_is_above_the_version(path: str, root: str) -> None:
    assert pod_manifest.weights_root(path) == root


def container(spec: dict[str, Any], name: str) -> dict[str, Any]:
    found = [*spec["initContainers"], *spec["containers"]]
    return next(one for one in found if one["name"] == name)


def variables(spec: dict[str, Any]) -> dict[str, str]:
    return {e["name"]: e.get("value", "") for e in container(spec, "sidecar")["env"]}


@pytest.mark.parametrize(
    ("cache", "volume", "limits"),
    [
        ({}, {"sizeLimit": "1Ti"}, (str(1 << 40), None)),
        ({"size": "3Gi"}, {"sizeLimit": "3Gi"}, (str(3 << 30), None)),
        (
            {"size": 5000, "medium": "Memory"},
            {"sizeLimit": 5000, "medium": "Memory"},
            ("5000", "0"),
        ),
    ],
)
def test_the_cache_is_a_bounded_volume_that_only_the_sidecar_writes(
    cache: dict[str, Any], volume: dict[str, Any], limits: tuple[str, str | None]
) -> None:
    spec = pod(weights={"path": "/w/{version}", "cache": cache})["spec"]

    assert {"name": "cache", "emptyDir": volume} in spec["volumes"]
    env = variables(spec)
    assert (env["RLFLEET_CACHE_BYTES"], env.get("RLFLEET_CACHE_SPARE")) == limits
    mount = {"name": "cache", "mountPath": env["RLFLEET_CACHE_DIR"]}
    assert mount in container(spec, "sidecar")["volumeMounts"]
    assert mount | {"readOnly": True} in container(spec, "engine")["volumeMounts"]


@pytest.mark.parametrize("weights", [None, {"path": "/w/{version}", "cache": {"enabled": False}}])
def test_without_a_cache_there_is_no_trace_of_it(weights: dict[str, Any] | None) -> None:
    assert "cache" not in json.dumps(pod(weights=weights)["spec"]).lower()


def test_fields_about_one_version_and_the_cache_s_default_restart_no_worker() -> None:
    def digest(**weights: Any) -> str:
        spec = {"weights": {"path": "/w/{version}"} | weights}
        return pod_manifest.template_hash(fleets.fleet(spec))

    told = {"digest": f"sha256:{'0' * 64}", "step": 7, "runId": "a"}
    written = {"cache": {"enabled": True, "medium": "Disk"}}
    assert digest() == digest(**told) == digest(**written)
    assert digest() != digest(cache={"size": "1Gi"}) != digest(cache={"enabled": False})


def test_only_a_sidecar_that_accepts_offers_can_write_the_weights() -> None:
    volume = {"persistentVolumeClaim": {"claimName": "weights"}}
    weights = {"path": "/w/{version}", "volume": volume, "follow": "Latest"}
    mount = {"name": "weights", "mountPath": "/w"}

    def mounts(name: str, **more: Any) -> list[dict[str, Any]]:
        mounted = container(pod(weights=weights | more)["spec"], name)["volumeMounts"]
        return [one for one in mounted if one["name"] == "weights"]

    assert mounts("sidecar", acknowledge=True) == [mount]
    assert mounts("engine", acknowledge=True) == [mount | {"readOnly": True}]
    assert mounts("sidecar") == mounts("engine") == [mount | {"readOnly": True}]


@pytest.mark.parametrize(
    "weights", [{"follow": "Latest"}, {"retention": {}}, {"sharing": True}], ids=str
)
def test_what_only_commands_carry_replaces_no_pod(weights: dict[str, Any]) -> None:
    least = {"path": "/w/{version}"}
    before = fleets.fleet({"weights": least})
    after = fleets.fleet({"weights": least | weights})

    assert pod_manifest.pod(before, 0, DEFAULTS) == pod_manifest.pod(after, 0, DEFAULTS)


@pytest.mark.parametrize(
    ("asked", "requests"),
    [
        ({}, {"cpu": "250m", "memory": "256Mi"}),
        ({"requests": {"cpu": 2}}, {"cpu": 2, "memory": "256Mi"}),
        ({"limits": {"cpu": "100m"}}, {"memory": "256Mi"}),
        (
            {"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}},
            {"cpu": "250m", "memory": "1Gi"},
        ),
    ],
    ids=str,
)
def test_a_sidecar_has_a_request_where_its_fleet_names_none(
    asked: dict[str, Any], requests: dict[str, Any]
) -> None:
    """A busy engine must leave it time; Kubernetes takes a limit alone as the request."""
    (sidecar,) = pod(sidecar={"resources": asked})["spec"]["initContainers"]

    assert sidecar["resources"] == {"requests": requests, "limits": asked.get("limits", {})}


SHOWN = {
    "key": "k",
    "engine": "vLLM 0.32.0 (cpu) with Qwen3ForCausalLM",
    "tested": True,
    "passed": True,
    "distance": 0.0,
    "kinds": 13,
}


def remembered(template: str | None = None, **fields: object) -> str | None:
    """Return the result of an earlier self-test in a new pod."""
    plain = fleets.fleet()
    known = SHOWN | {"template": template or pod_manifest.template_hash(plain)} | fields
    made = pod_manifest.pod(fleets.fleet(status={"selfTest": known}), 0, DEFAULTS)
    found = made["metadata"]["annotations"].get("rlfleet.dev/self-test")
    return None if found is None else str(found)


def test_a_new_pod_gets_the_self_test_s_result_of_an_equal_engine() -> None:
    told = SelfTest.model_validate_json(remembered() or "")

    assert (told.key, told.passed, told.kinds, told.distance) == ("k", True, 13, 0.0)
    sidecar = container(pod()["spec"], "sidecar")
    (source,) = (e["valueFrom"] for e in sidecar["env"] if e["name"] == "RLFLEET_SELF_TEST")
    assert source["fieldRef"]["fieldPath"] == "metadata.annotations['rlfleet.dev/self-test']"


def test_a_pod_of_another_template_and_one_after_a_failure_are_tested_again() -> None:
    assert remembered(template="another") is None
    assert remembered(passed=False, reason="stale") is None


def test_what_is_remembered_replaces_no_pod() -> None:
    known = SHOWN | {"template": pod_manifest.template_hash(fleets.fleet())}

    assert pod_manifest.template_hash(
        fleets.fleet(status={"selfTest": known})
    ) == pod_manifest.template_hash(fleets.fleet())


def test_the_experimental_transfer_is_off_until_it_is_asked_for() -> None:
    asked = variables(pod(sidecar={"experimentalTransfer": True})["spec"])

    assert asked["RLFLEET_EXPERIMENTAL_TRANSFER"] == "true"
    assert "RLFLEET_EXPERIMENTAL_TRANSFER" not in variables(pod()["spec"])


def test_the_preload_is_on_until_it_is_turned_off() -> None:
    off = variables(pod(engine={"preload": False})["spec"])

    assert off["RLFLEET_PRELOAD_S"] == "0"
    assert "RLFLEET_PRELOAD_S" not in variables(pod()["spec"])


def test_the_self_test_can_be_set() -> None:
    env = variables(pod(engine={"selfTestSeconds": 0, "requireTested": True})["spec"])

    assert (env["RLFLEET_SELF_TEST_S"], env["RLFLEET_REQUIRE_TESTED"]) == ("0", "true")
    assert "RLFLEET_SELF_TEST_S" not in variables(pod()["spec"])


@pytest.mark.parametrize(
    ("engine", "drained_s", "grace_s"),
    [({}, 60, 90), ({"drainSeconds": 1500}, 1500, 1530), ({"drainSeconds": 0}, 0, 30)],
    ids=["by default", "for agents", "not at all"],
)
def test_a_pod_that_leaves_has_time_for_its_requests_and_for_its_own_end(
    engine: dict[str, Any], drained_s: int, grace_s: int
) -> None:
    made = pod(engine=engine)["spec"]
    command = made["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]

    assert command[-1] == f"--seconds={drained_s}"
    assert made["terminationGracePeriodSeconds"] == grace_s


def test_a_template_may_set_another_grace_period() -> None:
    made = pod(template={"spec": {"terminationGracePeriodSeconds": 7}})

    assert made["spec"]["terminationGracePeriodSeconds"] == 7
