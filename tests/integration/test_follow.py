"""A fleet that follows its trainer: the trainer publishes, and does nothing else."""

import json
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from rlfleet.publish import Options, Publisher
from tests.fakes import checkpoints
from tests.hollow import HollowNode
from tests.integration.conftest import Fleet, Operator, until

pytestmark = pytest.mark.integration

WEIGHTS = {"path": "/weights/{version}", "follow": "Latest"}


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A volume without a version."""
    root = tmp_path / "weights"
    root.mkdir()
    return root


@pytest.fixture
def publisher(weights: Path) -> Iterator[Publisher]:
    with Publisher(weights) as found:
        yield found


def saved(tmp_path: Path, seed: int) -> Path:
    return checkpoints.write_version(tmp_path / "saved", f"step-{seed}", seed)


def serves(fleet: Fleet, version: str) -> Callable[[], Awaitable[bool]]:
    async def is_so() -> bool:
        status = await fleet.status()
        return status.get("serving") == status.get("target") == version

    return is_so


async def test_the_fleet_takes_up_each_version_that_the_trainer_publishes(
    operator: Operator, node: HollowNode, fleet: Fleet, publisher: Publisher, tmp_path: Path
) -> None:
    await fleet.create(weights=WEIGHTS)
    first = publisher.publish(saved(tmp_path, 1))
    await until(serves(fleet, first.name), describe=fleet.describe)
    before = await fleet.pods()

    second = publisher.publish(saved(tmp_path, 2), full=True)
    await until(serves(fleet, second.name), describe=fleet.describe)
    status, after = await fleet.status(), await fleet.pods()

    assert status["latest"]["version"] == status["followed"]["version"] == second.name
    assert status["rollout"]["from"] == first.name
    assert status["rollout"]["reason"] == "Follow"
    assert "weightVersion" not in (await fleet.get())["spec"]
    assert {n: p["metadata"]["uid"] for n, p in before.items()} == {
        n: p["metadata"]["uid"] for n, p in after.items()
    }


async def test_the_fleet_takes_up_deltas(
    operator: Operator, node: HollowNode, fleet: Fleet, weights: Path, tmp_path: Path
) -> None:
    """The first is one of the model that engines boot with; no full version is ever written."""
    await fleet.create(weights=WEIGHTS)
    with Publisher(weights, Options(base=tmp_path / "model")) as publisher:
        for seed in (1, 2, 3):
            found = publisher.publish(saved(tmp_path, seed))
            assert not found.is_full
            await until(serves(fleet, found.name), describe=fleet.describe)

    assert [past["to"] for past in (await fleet.status())["history"]] == [
        "weight_v000002",
        "weight_v000001",
    ]


async def test_a_bad_version_is_left_when_the_next_one_comes(
    operator: Operator,
    node: HollowNode,
    fleet: Fleet,
    publisher: Publisher,
    weights: Path,
    tmp_path: Path,
) -> None:
    await fleet.create(weights=WEIGHTS)
    first = publisher.publish(saved(tmp_path, 1))
    await until(serves(fleet, first.name), describe=fleet.describe)

    bad = publisher.publish(checkpoints.spoil(saved(tmp_path, 2), "an infinity"), full=True)
    await fleet.stalled()
    status = await fleet.status()
    assert (status["latest"]["version"], status["serving"]) == (bad.name, first.name)

    good = publisher.publish(saved(tmp_path, 3), full=True)
    await until(serves(fleet, good.name), describe=fleet.describe)


async def test_a_pin_holds_the_fleet_and_its_removal_takes_it_to_the_newest(
    operator: Operator, node: HollowNode, fleet: Fleet, publisher: Publisher, tmp_path: Path
) -> None:
    await fleet.create(weights=WEIGHTS)
    names = [publisher.publish(saved(tmp_path, seed), full=True).name for seed in (1, 2)]
    await until(serves(fleet, names[1]), describe=fleet.describe)

    await fleet.patch(weightVersion=names[0])
    await until(serves(fleet, names[0]), describe=fleet.describe)
    third = publisher.publish(saved(tmp_path, 3), full=True).name
    await until(lambda: latest_is(fleet, third), describe=fleet.describe)
    assert (await fleet.status())["serving"] == names[0]

    await fleet.patch(weightVersion=None)
    await until(serves(fleet, third), describe=fleet.describe)
    targets = [past["to"] for past in (await fleet.status())["history"]]
    assert targets[:2] == names[:1] + names[1:2]


async def latest_is(fleet: Fleet, version: str) -> bool:
    return bool(((await fleet.status()).get("latest") or {}).get("version") == version)


async def test_a_pointer_to_another_run_takes_the_fleet_back(
    operator: Operator, node: HollowNode, fleet: Fleet, weights: Path
) -> None:
    for seed in (1, 2, 9):
        checkpoints.write_version(weights, f"weight_v{seed:06d}", seed)
    (weights / "latest").write_text("run-1/weight_v000009")
    await fleet.create(weights=WEIGHTS)
    await until(serves(fleet, "weight_v000009"), describe=fleet.describe)

    (weights / "latest").write_text("run-2/weight_v000002")
    await until(serves(fleet, "weight_v000002"), describe=fleet.describe)
    status = await fleet.status()

    assert status["followed"]["runId"] == status["rollout"]["runId"] == "run-2"
    assert json.dumps(status["history"]).count("weight_v000001") == 0


async def offered(root: Path, step: int) -> None:
    """Publish as prime-rl's newest trainer does: nothing before its offer is accepted."""
    folder = root / f"step_{step}"
    folder.mkdir()
    (folder / ".sender_ready").touch()

    async def is_accepted() -> bool:
        return (folder / ".receiver_ready").exists()

    await until(is_accepted)
    (folder / ".started").touch()
    checkpoints.write_file(folder / "model.safetensors", checkpoints.SHAPES, step)
    (folder / ".finished").touch()
    shutil.rmtree(root / f"step_{step - 2}", ignore_errors=True)


async def test_a_trainer_that_waits_for_a_receiver_publishes_as_fast_as_the_fleet_changes(
    operator: Operator, node: HollowNode, fleet: Fleet, weights: Path
) -> None:
    """No version is skipped, though the trainer never waits for the fleet but by its offers."""
    await fleet.create(weights=WEIGHTS | {"acknowledge": True})
    for step in (1, 2, 3, 4):
        await offered(weights, step)

    await until(serves(fleet, "step_4"), describe=fleet.describe)
    history = (await fleet.status())["history"]
    assert [past["to"] for past in history] == ["step_3", "step_2", "step_1"]


def move(root: Path, to: Path) -> Path:
    return root.rename(to)


async def test_a_root_that_no_worker_can_read_is_said_until_it_is_there(
    operator: Operator, node: HollowNode, fleet: Fleet, weights: Path
) -> None:
    away = move(weights, weights.with_name("away"))
    await fleet.create(weights=WEIGHTS)

    async def reason() -> str | None:
        found = {c["type"]: c for c in (await fleet.status()).get("conditions", ())}
        return found["Degraded"]["reason"] if "Degraded" in found else None

    async def is_blind() -> bool:
        return await reason() == "StoreUnreadable"

    async def is_well() -> bool:
        return await reason() is None

    await until(is_blind, describe=fleet.describe)
    move(away, weights)
    await until(is_well, describe=fleet.describe)
