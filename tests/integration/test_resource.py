"""The CRD on a real API server: every rule accepts and refuses, in words a person understands."""

import json
from typing import Any

import pytest

from dev.kubernetes import apiserver
from tests.integration.conftest import kubectl

pytestmark = pytest.mark.integration

LEAST: dict[str, Any] = {
    "model": {"name": "qwen", "path": "/models/qwen"},
    "weights": {"path": "/weights/{version}"},
}


def manifest(spec: dict[str, Any], name: str = "qwen") -> str:
    return json.dumps(
        {
            "apiVersion": "rlfleet.dev/v1alpha1",
            "kind": "RLInferenceFleet",
            "metadata": {"name": name},
            "spec": LEAST | spec,
        }
    )


def applied(plane: apiserver.ControlPlane, namespace: str, text: str) -> tuple[bool, str]:
    words = ("-n", namespace, "apply", "--dry-run=server", "-f", "-")
    done = kubectl(plane, *words, stdin=text, check=False)
    return done.returncode == 0, done.stdout + done.stderr


def adapter(**fields: Any) -> dict[str, Any]:
    return {"name": "poet", "path": "/weights/poet", "version": "v1"} | fields


def lora(*adapters: dict[str, Any], args: tuple[str, ...] = ("--enable-lora",)) -> dict[str, Any]:
    """Return a spec with adapters."""
    return {"engine": {"args": list(args)}, "adapters": list(adapters)}


ACCEPTED: dict[str, dict[str, Any]] = {
    "the least": {},
    "no weights without a version": {"weights": None},
    "no replicas": {"replicas": 0},
    "a version": {"weightVersion": "step-120"},
    "a version of one letter": {"weightVersion": "a"},
    "a version of 128 letters": {"weightVersion": "v" * 128},
    "the base model needs no weights": {"weights": None, "weightVersion": "base"},
    "a number of workers": {"rollout": {"maxUnavailable": 3}},
    "a percentage of workers": {"rollout": {"maxUnavailable": "50%"}},
    "every pause mode": {"rollout": {"pauseMode": "Wait", "kvCache": "Preserve"}},
    "a version inside a name": {"weights": {"path": "/w/run-{version}/weight"}},
    "a mount above the path": {"weights": {"path": "/w/a/{version}", "mountPath": "/w"}},
    "slashes at the ends of both": {"weights": {"path": "/w/{version}/", "mountPath": "/w/"}},
    "flags of vLLM": {"engine": {"args": ["--enforce-eager", "--max-model-len=64"]}},
    "resources": {"engine": {"resources": {"limits": {"cpu": 1, "nvidia.com/gpu": "8"}}}},
    "any volume source": {"model": LEAST["model"] | {"volume": {"emptyDir": {"sizeLimit": 1}}}},
    "a barrier": {"rollout": {"strategy": "Barrier"}},
    "a canary": {
        "rollout": {"strategy": "Canary", "canary": {"count": "10%", "promote": "Manual"}}
    },
    "a canary by its defaults": {"rollout": {"strategy": "Canary"}},
    "a partition": {"rollout": {"partition": "50%"}},
    "no partition by name": {"rollout": {"strategy": "Barrier", "partition": "0%"}},
    "a rollback": {"rollout": {"onFailure": "Rollback", "maxFailed": 0}},
    "no adapters": {"adapters": []},
    "adapters": lora(
        adapter(), adapter(name="critic", path="/weights/critic/{version}", version="step-3")
    ),
    "a run and its step": {"weights": LEAST["weights"] | {"runId": "a", "step": 12}},
    "a digest": {"weights": LEAST["weights"] | {"digest": f"sha256:{'0af' * 21}0"}},
    "a cache in memory": {
        "weights": LEAST["weights"] | {"cache": {"medium": "Memory", "size": "8Gi"}}
    },
    "no cache": {"weights": LEAST["weights"] | {"cache": {"enabled": False}}},
    "a bucket": {"weights": {"source": {"url": "s3://bucket/run/{version}"}}},
    "a bucket of a server like S3": {
        "weights": {
            "source": {
                "url": "s3://b/runs/a-1/step_{version}/weight",
                "endpoint": "http://minio.storage:9000",
                "region": "us-east-1",
                "credentialsSecret": "s3-reader",
            }
        }
    },
    "a public bucket of Google": {
        "weights": {"source": {"url": "gs://b/{version}", "anonymous": True}}
    },
    "an HTTP server": {"weights": {"source": {"url": "https://host:8443/run/{version}"}}},
    "a space in a URL": {"weights": {"source": {"url": "https://host/my%20run/{version}"}}},
    "bounds of staleness": {"staleness": {"maxSkew": 2, "minVersion": "step-3"}},
    "any pod template": {"template": {"spec": {"nodeSelector": {"gpu": "h200"}}}},
    "labels and annotations of a pod": {
        "template": {"metadata": {"labels": {"team": "rl"}, "annotations": {"a/b": "c"}}}
    },
    "a pod template of nulls": {"template": {"metadata": {"labels": None}, "spec": None}},
    "more of a pod's metadata": {
        "template": {"metadata": {"creationTimestamp": None, "name": "x"}}
    },
    "a size of nothing": {"engine": {"sharedMemory": 0}},
    "a cache of a fraction": {"weights": LEAST["weights"] | {"cache": {"size": "0.5Gi"}}},
    "markers": {"weights": LEAST["weights"] | {"markers": ["DONE", ".ready", "a b"]}},
    "a key for samplers": {"engine": {"extraEnv": [{"name": "VLLM_API_KEY", "value": "k"}]}},
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    **{
        f"a cache of {size!r}": (
            {"weights": LEAST["weights"] | {"cache": {"size": size}}},
            "must be more than 0",
        )
        for size in (0, "0", "0Gi", "+0.0", ".0e3")
    },
    **{
        f"the marker {marker!r}": (
            {"weights": LEAST["weights"] | {"markers": ["STABLE", marker]}},
            "one file name",
        )
        for marker in ("", "sub/STABLE", "a,b", ".", "..")
    },
    "a key that the probe cannot have": (
        {"engine": {"args": ["--api-key", "k"]}},
        "API key as VLLM_API_KEY in engine.extraEnv",
    ),
    "negative replicas": ({"replicas": -1}, "spec.replicas"),
    "adapters without --enable-lora": (lora(adapter(), args=("--max-loras=2",)), "--enable-lora"),
    "adapters without an engine": ({"adapters": [adapter()]}, "--enable-lora"),
    "adapters without weights": (
        lora(adapter()) | {"weights": None},
        "adapters need weights.path",
    ),
    "an adapter twice": (lora(adapter(), adapter(version="v2")), "Duplicate value"),
    "an adapter of the model's name": (lora(adapter(name="qwen")), "another name than model.name"),
    "an adapter's name that is a path": (lora(adapter(name="a/b")), "one directory name"),
    "an adapter's path that leads up": (lora(adapter(path="/weights/../x")), "absolute path"),
    "an adapter's path with two versions": (
        lora(adapter(path="/weights/{version}/{version}")),
        "'{version}' once",
    ),
    "an adapter without a version": (
        lora({"name": "poet", "path": "/weights/poet"}),
        "adapters[0].version",
    ),
    "a digest that is none": (
        {"weights": LEAST["weights"] | {"digest": "sha256:1234"}},
        "64 digits",
    ),
    "a cache in memory without a size": (
        {"weights": LEAST["weights"] | {"cache": {"medium": "Memory"}}},
        "needs weights.cache.size",
    ),
    "an unknown field": ({"weightsVersion": "step-1"}, 'unknown field "spec.weightsVersion"'),
    "an unknown field further down": (
        {"rollout": {"maxUnavailabel": 1}},
        'unknown field "spec.rollout.maxUnavailabel"',
    ),
    "a version that leaves its root": ({"weightVersion": "../etc"}, "one directory name"),
    "a version that is a path": ({"weightVersion": "a/b"}, "no '/'"),
    "a version that begins with a dot": ({"weightVersion": ".x"}, "one directory name"),
    "an empty version": ({"weightVersion": ""}, "one directory name"),
    "a version too long": ({"weightVersion": "v" * 129}, "128"),
    "a version without weights": (
        {"weightVersion": "step-1", "weights": None},
        "weightVersion needs weights.path",
    ),
    "neither path nor source": ({"weights": {"markers": ["DONE"]}}, "either path, on a volume"),
    "path and source": (
        {"weights": LEAST["weights"] | {"source": {"url": "s3://b/{version}"}}},
        "either path, on a volume, or source",
    ),
    "a source with a volume": (
        {"weights": {"source": {"url": "s3://b/{version}"}, "volume": {"emptyDir": {}}}},
        "belong to weights.path",
    ),
    "a source without a cache": (
        {"weights": {"source": {"url": "s3://b/{version}"}, "cache": {"enabled": False}}},
        "weights.source needs weights.cache.enabled",
    ),
    "a volume whose versions are to be deleted": (
        {"weights": LEAST["weights"] | {"retention": {"keep": 3}}},
        "weights.retention.keep needs weights.source",
    ),
    "offers that no fleet follows": (
        {"weights": LEAST["weights"] | {"acknowledge": True}},
        "weights.acknowledge needs weights.path and weights.follow Latest",
    ),
    "offers in a store": (
        {
            "weights": {
                "source": {"url": "s3://b/{version}"},
                "follow": "Latest",
                "acknowledge": True,
            }
        },
        "weights.acknowledge needs weights.path and weights.follow Latest",
    ),
    "retention of a server that lists nothing": (
        {"weights": {"source": {"url": "https://h/{version}"}, "retention": {}}},
        "an HTTP server lists nothing",
    ),
    "retention of no version": (
        {"weights": {"source": {"url": "s3://b/{version}"}, "retention": {"keep": 0}}},
        "spec.weights.retention.keep",
    ),
    "adapters with a source": (
        lora(adapter()) | {"weights": {"source": {"url": "s3://b/{version}"}}},
        "adapters need weights.path",
    ),
    **{
        f"the source {url}": ({"weights": {"source": {"url": url}}}, "weights.source.url must be")
        for url in (
            "s3://b/run",
            "s3://{version}",
            "s3://b/{version}/{version}",
            "s3://key:secret@b/{version}",
            "https://host/{version}?token=x",
            "https://host/a%2Fb/{version}",
            "https://host/%2e%2e/{version}",
            "s3://b//{version}",
            "s3://b/../{version}",
            "file:///weights/{version}",
            "/weights/{version}",
        )
    },
    "an endpoint that is none": (
        {"weights": {"source": {"url": "s3://b/{version}", "endpoint": "minio:9000"}}},
        "weights.source.endpoint must be a URL",
    ),
    "an endpoint of an HTTP server": (
        {"weights": {"source": {"url": "https://h/{version}", "endpoint": "https://h"}}},
        "write the server into url",
    ),
    "a region of Google's": (
        {"weights": {"source": {"url": "gs://b/{version}", "region": "eu"}}},
        "region is for s3:// alone",
    ),
    "an HTTP server without a signature": (
        {"weights": {"source": {"url": "https://h/{version}", "anonymous": True}}},
        "anonymous is for s3:// and gs:// alone",
    ),
    "a path without the version": ({"weights": {"path": "/weights"}}, "hold '{version}' once"),
    "a path with two versions": (
        {"weights": {"path": "/w/{version}/{version}"}},
        "hold '{version}' once",
    ),
    "a version without a root": ({"weights": {"path": "/{version}"}}, "below a root"),
    "a path that climbs": ({"weights": {"path": "/w/../{version}"}}, "without '.', '..'"),
    "a relative path": ({"weights": {"path": "w/{version}"}}, "absolute path"),
    "a mount outside the path": (
        {"weights": {"path": "/w/{version}", "mountPath": "/x"}},
        "must lie below weights.mountPath",
    ),
    "a mount whose name the path's only begins with": (
        {"weights": {"path": "/weights/{version}", "mountPath": "/w"}},
        "must lie below weights.mountPath",
    ),
    "no worker out at once": ({"rollout": {"maxUnavailable": 0}}, "at least 1"),
    "no percentage": ({"rollout": {"maxUnavailable": "0%"}}, "from '1%' to '100%'"),
    "too much": ({"rollout": {"maxUnavailable": "101%"}}, "from '1%' to '100%'"),
    "an unknown strategy": ({"rollout": {"strategy": "Yolo"}}, "spec.rollout.strategy"),
    "an unknown pause mode": ({"rollout": {"pauseMode": "Stop"}}, "spec.rollout.pauseMode"),
    "several engines": ({"engine": {"args": ["--data-parallel-size=2"]}}, "Set spec.replicas"),
    "moving experts": ({"engine": {"args": ["--enable_eplb"]}}, "leave it out"),
    "several engines, in short": ({"engine": {"args": ["-dp", "2"]}}, "Set spec.replicas"),
    "our own flags": ({"engine": {"args": ["--port=1"]}}, "are set from the spec"),
    "two volume sources": (
        {"weights": {"path": "/w/{version}", "volume": {"emptyDir": {}, "nfs": {}}}},
        "spec.weights.volume",
    ),
    "a model without a name": ({"model": {"path": "/m"}}, "spec.model.name"),
    "a model at a relative path": ({"model": {"name": "q", "path": "m"}}, "absolute path"),
    "a model of the Hub": (
        {"model": {"name": "q", "path": "Qwen/Qwen3-8B"}},
        "put the model on a volume, model.volume",
    ),
    "more than a day to drain": ({"engine": {"drainSeconds": 86401}}, "spec.engine.drainSeconds"),
    "no time at all": (
        {"rollout": {"timeouts": {"pauseSeconds": 0}}},
        "spec.rollout.timeouts.pauseSeconds",
    ),
    "a canary without its strategy": ({"rollout": {"canary": {}}}, "for strategy Canary"),
    "a canary of no worker": (
        {"rollout": {"strategy": "Canary", "canary": {"count": 0}}},
        "at least 1",
    ),
    "a barrier with a partition": (
        {"rollout": {"strategy": "Barrier", "partition": 1}},
        "must be 0 for strategy Barrier",
    ),
    "a negative partition": ({"rollout": {"partition": -1}}, "from '0%' to '100%'"),
    "a lowest version without a number": (
        {"staleness": {"minVersion": "final"}},
        "minVersion must end with a number",
    ),
    "a step below none": ({"weights": LEAST["weights"] | {"step": -1}}, "spec.weights.step"),
    "a cache smaller than nothing": (
        {"weights": LEAST["weights"] | {"cache": {"size": -1}}},
        "spec.weights.cache.size",
    ),
    "a cache smaller than nothing, as text": (
        {"weights": LEAST["weights"] | {"cache": {"size": "-1Gi"}}},
        "spec.weights.cache.size",
    ),
    "less memory than none": ({"engine": {"sharedMemory": -1}}, "spec.engine.sharedMemory"),
    "fewer GPUs than none": (
        {"engine": {"resources": {"limits": {"nvidia.com/gpu": -1}}}},
        "spec.engine.resources.limits",
    ),
    "a template's metadata that is none": (
        {"template": {"metadata": "x"}},
        "spec.template.metadata",
    ),
    "a list of annotations": (
        {"template": {"metadata": {"annotations": []}}},
        "spec.template.metadata.annotations",
    ),
    "a label that is a number": (
        {"template": {"metadata": {"labels": {"step": 1}}}},
        "spec.template.metadata.labels",
    ),
    "a template's spec that is a list": ({"template": {"spec": []}}, "spec.template.spec"),
    "half a GPU group": ({"engine": {"tensorParallelSize": 0}}, "tensorParallelSize"),
}


@pytest.mark.parametrize("spec", ACCEPTED.values(), ids=ACCEPTED)
def test_it_is_accepted(
    plane: apiserver.ControlPlane, namespace: str, spec: dict[str, Any]
) -> None:
    is_accepted, answer = applied(plane, namespace, manifest(spec))

    assert is_accepted, answer


@pytest.mark.parametrize(("spec", "words"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused_by_name(
    plane: apiserver.ControlPlane, namespace: str, spec: dict[str, Any], words: str
) -> None:
    is_accepted, answer = applied(plane, namespace, manifest(spec))

    assert not is_accepted
    assert words in answer.replace('\\"', '"')


def _patched(plane: apiserver.ControlPlane, namespace: str, spec: dict[str, Any]) -> str:
    words = (
        "-n",
        namespace,
        "patch",
        "rlf/ordered",
        "--type=merge",
        "-p",
        json.dumps({"spec": spec}),
    )
    done = kubectl(plane, *words, check=False)
    return done.stderr


def test_a_step_back_within_a_run_is_refused_unless_it_is_meant(
    plane: apiserver.ControlPlane, namespace: str
) -> None:
    spec = {"weights": LEAST["weights"] | {"runId": "a", "step": 12}}
    kubectl(plane, "-n", namespace, "create", "-f", "-", stdin=manifest(spec, "ordered"))

    assert _patched(plane, namespace, {"weights": {"step": 13}}) == ""
    assert "rollout.allowRewind" in _patched(plane, namespace, {"weights": {"step": 12}})
    assert _patched(plane, namespace, {"weights": {"runId": "b", "step": 1}}) == ""
    rewound = {"weights": {"step": 0}, "rollout": {"allowRewind": True}}
    assert _patched(plane, namespace, rewound) == ""


@pytest.mark.parametrize("name", ["0qwen", "q" * 51, "a.b"])
def test_a_name_that_no_service_can_have_is_refused(
    plane: apiserver.ControlPlane, namespace: str, name: str
) -> None:
    is_accepted, answer = applied(plane, namespace, manifest({}, name))

    assert not is_accepted
    assert "metadata.name must be a DNS label" in answer


@pytest.mark.parametrize("name", ["qwen-workers", "qwen-admin"])
def test_a_name_of_another_fleet_s_objects_is_refused(
    plane: apiserver.ControlPlane, namespace: str, name: str
) -> None:
    is_accepted, answer = applied(plane, namespace, manifest({}, name))

    assert not is_accepted
    assert "metadata.name must not end with -workers or -admin" in answer


def test_nothing_looks_current_before_it_was_seen(
    plane: apiserver.ControlPlane, namespace: str
) -> None:
    words = ("-n", namespace, "create", "-o", "json", "-f", "-")
    made = json.loads(kubectl(plane, *words, stdin=manifest({}, "unseen")).stdout)

    assert made["status"] == {"observedGeneration": -1}


def test_defaults_are_written_for_people_to_read(
    plane: apiserver.ControlPlane, namespace: str
) -> None:
    words = ("-n", namespace, "create", "--dry-run=server", "-o", "json", "-f", "-")
    spec = json.loads(kubectl(plane, *words, stdin=manifest({})).stdout)["spec"]

    assert "weightVersion" not in spec
    assert spec["replicas"] == 1
    assert spec["rollout"]["maxUnavailable"] == "25%"
    assert spec["weights"]["markers"] == ["STABLE", ".finished"]


def test_explain_says_what_a_field_is_for(plane: apiserver.ControlPlane) -> None:
    text = kubectl(plane, "explain", "rlf.spec.weightVersion").stdout

    assert "every worker must serve" in " ".join(text.split())
