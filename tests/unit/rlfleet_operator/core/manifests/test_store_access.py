"""A pod whose versions are in an object store."""

import json
from typing import Any

from rlfleet_operator.core.manifests import pod_manifest
from tests import fleets

URL = "s3://bucket/run/{version}"


def spec_of(**source: Any) -> dict[str, Any]:
    fleet = fleets.fleet({"weights": {"source": {"url": URL} | source}})
    made = pod_manifest.pod(fleet, 0, pod_manifest.Defaults(worker_image="worker:1"))
    spec: dict[str, Any] = made["spec"]
    return spec


def env(spec: dict[str, Any]) -> dict[str, str]:
    (sidecar,) = spec["initContainers"]
    return {one["name"]: one["value"] for one in sidecar["env"] if "value" in one}


def test_the_sidecar_gets_the_url_and_no_volume_is_mounted() -> None:
    spec = spec_of()

    assert env(spec)["RLFLEET_WEIGHTS_SOURCE"] == URL
    assert not {name for name in env(spec) if name.startswith("RLFLEET_STORE_")}
    assert "RLFLEET_WEIGHTS_PATH" not in env(spec)
    assert not {"weights", "store"} & {volume["name"] for volume in spec["volumes"]}


def test_each_field_reaches_the_sidecar() -> None:
    found = env(spec_of(endpoint="https://minio:9000", region="eu-1", anonymous=True))

    assert found["RLFLEET_STORE_ENDPOINT"] == "https://minio:9000"
    assert found["RLFLEET_STORE_REGION"] == "eu-1"
    assert found["RLFLEET_STORE_ANONYMOUS"] == "true"


def test_the_credentials_are_mounted_in_the_sidecar_alone() -> None:
    spec = spec_of(credentialsSecret="s3-reader")

    (sidecar,), (engine,) = spec["initContainers"], spec["containers"]
    volume = {"name": "store", "secret": {"secretName": "s3-reader", "optional": True}}
    assert volume in spec["volumes"]
    (mount,) = (one for one in sidecar["volumeMounts"] if one["name"] == "store")
    assert mount["readOnly"]
    assert env(spec)["RLFLEET_STORE_CREDENTIALS"] == mount["mountPath"]
    assert "store" not in json.dumps(engine)
    assert "s3-reader" not in json.dumps([engine, sidecar])


def test_another_source_replaces_the_pods() -> None:
    def digest(**source: Any) -> str:
        return pod_manifest.template_hash(
            fleets.fleet({"weights": {"source": {"url": URL} | source}})
        )

    assert len({digest(), digest(url="s3://other/{version}"), digest(region="eu-1")}) == 3
