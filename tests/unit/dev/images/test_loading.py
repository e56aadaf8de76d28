"""How images come into a user's cluster."""

from pathlib import Path
from typing import Any

import pytest

from dev.images import loading, names
from dev.steps import StepFailed

KIND = {
    "metadata": {"labels": {}},
    "spec": {"providerID": "kind://docker/dev/dev-control-plane"},
}
MINIKUBE = {"metadata": {"labels": {"minikube.k8s.io/name": "mine"}}, "spec": {}}
CLOUD = {"metadata": {}, "spec": {"providerID": "aws:///eu-1a/i-0"}}


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (KIND, "kind load image-archive --name=dev a.tar"),
        (MINIKUBE, "minikube image load --profile=mine a.tar"),
    ],
)
def test_a_cluster_in_a_container_loads_archives(node: dict[str, Any], expected: str) -> None:
    assert " ".join(loading.loader([node]).command(Path("a.tar"))) == expected


@pytest.mark.parametrize("nodes", [[CLOUD], []])
def test_any_other_cluster_pulls_from_a_registry_that_the_user_names(nodes: list[Any]) -> None:
    with pytest.raises(StepFailed, match="set IMAGE_PREFIX"):
        loading.loader(nodes)


def test_an_image_is_loaded_unless_every_node_has_it() -> None:
    has: dict[str, Any] = {"status": {"images": [{"names": ["a@sha256:1", "a:1"]}, {}]}}
    lacks: dict[str, Any] = {"status": {}}

    assert loading.is_held([has, has], "a:1")
    assert not loading.is_held([has, lacks], "a:1")
    assert not loading.is_held([has], "a:2")


def test_a_user_chooses_the_image_under_the_worker_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_BASE", "vllm-for-cpu:1")

    assert "--build-arg=BASE=vllm-for-cpu:1" in loading.engine_command(
        "docker", names.worker(names.NEWEST)
    )
    assert "BASE" not in " ".join(loading.engine_command("docker", names.operator()))


def test_no_cluster_on_this_machine_gets_an_engine_that_needs_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("WORKER_BASE", raising=False)
    with pytest.raises(StepFailed, match="WORKER_BASE is not set"):
        loading.demand_base([names.operator(), names.worker(names.NEWEST)])
    loading.demand_base([names.operator()])

    monkeypatch.setenv("WORKER_BASE", "vllm-for-cpu:1")
    loading.demand_base([names.worker(names.NEWEST)])
