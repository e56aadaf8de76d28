"""examples/autoscaling: Kubernetes' own autoscaler scales a fleet."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.kubernetes import apiserver
from tests.hollow import HollowNode
from tests.integration.conftest import ROOT, Fleet, Operator, kubectl, until
from tests.integration.gitops import metrics_server
from tests.integration.gitops.metrics_server import Metrics

pytestmark = pytest.mark.integration
EXAMPLES = ROOT / "examples" / "autoscaling"


def example(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / name).read_text())
    return found


@pytest.fixture
async def metrics(
    plane: apiserver.ControlPlane, namespace: str, tmp_path: Path
) -> AsyncIterator[Metrics]:
    made = Metrics()
    async with made.serving(tmp_path) as port:
        objects = metrics_server.objects(namespace, port)
        kubectl(plane, "apply", "-f", "-", stdin=objects)
        yield made
        kubectl(plane, "delete", "-f", "-", stdin=objects)


async def test_the_autoscaler_follows_the_requests_that_wait(
    plane: apiserver.ControlPlane,
    operator: Operator,
    node: HollowNode,
    fleet: Fleet,
    metrics: Metrics,
) -> None:
    await fleet.create(weightVersion="step-1", replicas=1, rollout={"maxUnavailable": 1})
    await fleet.synced()
    scaler = example("hpa.yaml")
    scaler["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] = 0
    kubectl(plane, f"-n={fleet.namespace}", "apply", "-f", "-", stdin=yaml.safe_dump(scaler))

    metrics.waiting = 24
    await until(lambda: _wants(fleet, 3), describe=lambda: _scaler(plane, fleet))
    status = await fleet.synced()
    assert (status["proved"], status["serving"]) == ("3/3", "step-1")
    assert metrics.asked == {("rlfleet_waiting_requests", "fleet=qwen")}

    metrics.waiting = 16
    await until(lambda: _wants(fleet, 2), describe=lambda: _scaler(plane, fleet))
    await until(lambda: _pods_are(fleet, {"qwen-0", "qwen-1"}), describe=fleet.describe)
    assert (await fleet.synced())["serving"] == "step-1"


async def _wants(fleet: Fleet, replicas: int) -> bool:
    return bool((await fleet.get())["spec"]["replicas"] == replicas)


async def _pods_are(fleet: Fleet, names: set[str]) -> bool:
    return set(await fleet.pods()) == names


async def _scaler(plane: apiserver.ControlPlane, fleet: Fleet) -> str:
    return kubectl(plane, f"-n={fleet.namespace}", "describe", "hpa", "qwen", check=False).stdout


def test_both_ask_for_the_same_metric_and_scale_the_same_fleet() -> None:
    hpa, keda = example("hpa.yaml")["spec"], example("keda.yaml")["spec"]
    adapter = example("prometheus-adapter.yaml")["rules"]["external"][0]
    (trigger,) = keda["triggers"]

    assert hpa["scaleTargetRef"] == keda["scaleTargetRef"]
    assert hpa["metrics"][0]["external"]["metric"]["name"] == adapter["name"]["as"]
    assert hpa["behavior"] == keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert "vllm:num_requests_waiting" in adapter["metricsQuery"]
    assert "vllm:num_requests_waiting" in trigger["metadata"]["query"]
