"""The hollow kubelet over an API server whose watches end at once."""

import asyncio
from pathlib import Path

from rlfleet_operator.core.model.world import FLEET_LABEL
from rlfleet_operator.kube.client import Json, object_path
from tests.fakes import checkpoints
from tests.fakes.kube import FakeApi, serving
from tests.hollow import HollowNode
from tests.patience import seconds_until

PODS = object_path("rl", "pods")
SECRET = object_path("rl", "secrets", "qwen-admin")


def listed(*names: str) -> Json:
    version = {"resourceVersion": "1"}
    ours = version | {"namespace": "rl", "uid": "p-1", "labels": {FLEET_LABEL: "qwen"}}
    return {"metadata": version, "items": [{"metadata": ours | {"name": n}} for n in names]}


async def test_a_pod_deleted_without_a_watch_has_no_worker_and_waits_for_nothing(
    tmp_path: Path,
) -> None:
    api, model = FakeApi(), checkpoints.write_model(tmp_path / "model")
    api.objects[PODS] = listed("qwen-0")

    async def secret_is_asked_for() -> bool:
        return f"GET {SECRET}" in api.asked

    async with (
        serving(api) as kube,
        HollowNode(kube, "rl", model, tmp_path / "weights", tmp_path) as node,
    ):

        async def has_no_pod() -> bool:
            return not node.pods

        await seconds_until(secret_is_asked_for)
        assert set(node.pods) == {"qwen-0"}

        api.objects[PODS] = listed()
        await seconds_until(has_no_pod)
        # One question may be under way.
        await asyncio.sleep(0.3)
        api.asked.clear()
        await asyncio.sleep(0.3)

        assert f"GET {PODS}" in api.asked
        assert f"GET {SECRET}" not in api.asked
