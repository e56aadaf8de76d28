"""What is wrong with one fleet, its objects or its driver stops that fleet alone."""

import base64
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rlfleet_operator.kube.client import KubeClient, fleet_path, object_path
from tests.hollow import HollowNode
from tests.integration.conftest import Fleet, Operator, until
from tests.integration.defective.__main__ import DEFECT

pytestmark = pytest.mark.integration


@dataclass
class Pair:
    """A fleet with a defect, and one that must not notice it."""

    bad: Fleet
    good: Fleet
    operator: Operator

    async def is_unmoved(self, version: str) -> None:
        """Demand that the operator runs on and takes the good fleet to another version."""
        await self.good.patch(weightVersion=version)
        assert (await self.good.synced())["serving"] == version
        assert not await self.operator.has_ended()

    async def give_token(self, token: bytes) -> None:
        """Write the bad fleet's Secret, and have the operator read it."""
        path = object_path(self.bad.namespace, "secrets", f"{self.bad.name}-admin")
        text = base64.b64encode(token).decode()
        await self.bad.kube.patch(path, {"data": {"token": text}})
        await self.bad.patch(historyLimit=(await self.bad.get())["spec"]["historyLimit"] - 1)

    async def write_status(self, **status: Any) -> None:
        """Write what no operator writes."""
        path = fleet_path(self.bad.namespace, self.bad.name) + "/status"
        await self.bad.kube.patch(path, {"status": status})


@pytest.fixture
def module() -> str:
    return "tests.integration.defective"


@pytest.fixture
async def pair(operator: Operator, node: HollowNode, kube: KubeClient, namespace: str) -> Pair:
    """Two fleets that serve; the bad one asks for no version of its own."""
    pair = Pair(Fleet(kube, namespace, "bad"), Fleet(kube, namespace, "good"), operator)
    await pair.bad.create(replicas=1)
    await pair.good.create(replicas=1, weightVersion="step-1")
    await pair.good.synced()
    await until(lambda: _is_written(kube, namespace))
    return pair


async def _is_written(kube: KubeClient, namespace: str) -> bool:
    found = await kube.get(object_path(namespace, "secrets"))
    return "bad-admin" in {secret["metadata"]["name"] for secret in found["items"]}


async def test_a_token_that_no_header_carries_is_reported_and_mended(pair: Pair) -> None:
    await pair.give_token(b"\xff\xfe")

    stalled = await pair.bad.stalled()
    await pair.is_unmoved("step-2")
    assert stalled["reason"] == "ObjectRefused"
    assert "Secret bad-admin: data.token" in stalled["message"]

    # The workers' Secret is mended by its author: the fleet stays as it is.
    path = object_path(pair.bad.namespace, "secrets", "bad-admin")
    secret = await pair.bad.kube.get(path)
    await pair.bad.kube.delete(path, secret["metadata"]["uid"])
    await until(lambda: _is_not_stalled(pair.bad), describe=pair.bad.describe)


async def _is_not_stalled(fleet: Fleet) -> bool:
    return await fleet.condition("Stalled") == {}


async def test_a_line_break_after_the_token_is_no_part_of_it(pair: Pair, node: HollowNode) -> None:
    token = await _token(pair.bad)
    await pair.give_token(token + b"\n")
    await pair.bad.patch(weightVersion="step-1")

    assert (await pair.bad.synced())["serving"] == "step-1"


async def _token(fleet: Fleet) -> bytes:
    path = object_path(fleet.namespace, "secrets", f"{fleet.name}-admin")
    return base64.b64decode((await fleet.kube.get(path))["data"]["token"])


async def test_a_driver_that_fails_is_reported_and_replaced_until_it_gets_on(
    pair: Pair, tmp_path: Path
) -> None:
    at = "2026-01-01T00:00:00Z"
    pause = {"operation": DEFECT, "askedAt": at, "until": at, "ttlSeconds": 60}
    await pair.write_status(trainerPause=pause)

    stalled = await pair.bad.stalled()
    await pair.is_unmoved("step-2")
    assert stalled["reason"] == "InternalError"
    assert "internal error: LookupError" in stalled["message"]
    await until(lambda: _has_died_again(tmp_path))
    first, second, *_ = _deaths(tmp_path)
    assert (first["again_in_s"], second["again_in_s"]) == (5, 10)
    assert _moment(second) - _moment(first) >= timedelta(seconds=5)

    await pair.write_status(trainerPause=None)
    await pair.bad.patch(weightVersion="step-1")
    assert (await pair.bad.synced())["serving"] == "step-1"
    await until(lambda: _is_not_stalled(pair.bad))


def _moment(line: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(line["time"])


async def _has_died_again(tmp_path: Path) -> bool:
    return len(_deaths(tmp_path)) > 1


def _deaths(tmp_path: Path) -> list[dict[str, Any]]:
    lines = (tmp_path / "operator.log").read_text().splitlines()
    found = [json.loads(line) for line in lines if "Fleet driver failed" in line]
    assert {line["fleet"] for line in found} == {"bad"}
    return found
