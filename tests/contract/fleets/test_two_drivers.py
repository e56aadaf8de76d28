"""Two drivers at once, late and repeated commands, restarts: what a real sidecar does."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from tests.contract.conftest import settled
from tests.contract.subject import Subject
from tests.fakes.worker import Worker

COMMANDS = 40


@dataclass
class History:
    """What was sent and answered so far, and what must follow from it."""

    highest: int = 0
    answers: dict[tuple[int, int], tuple[int, bytes]] = field(default_factory=dict)
    sent: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    effects: int = 0

    def check(self, place: tuple[int, int], reply: httpx.Response, *, is_changed: bool) -> None:
        """Compare an answer with what must be true."""
        told = (reply.status_code, reply.content)
        is_stale = reply.status_code == 409 and reply.json()["code"] == Code.STALE_EPOCH
        if place[0] < self.highest:
            assert is_stale
            assert reply.json()["epoch"] == self.highest
        elif place in self.answers:
            assert told == self.answers[place]
        assert not is_changed or (place not in self.answers and not is_stale)
        if place[0] >= self.highest and not is_stale:
            self.answers.setdefault(place, told)
        self.highest = max(self.highest, place[0])
        self.effects += is_changed


def commands(dice: random.Random) -> Iterator[tuple[tuple[int, int], dict[str, Any]]]:
    """Make what two drivers send, the older one for too long, with repeats and late ones."""
    made: dict[tuple[int, int], dict[str, Any]] = {}
    numbers = {1: 0, 2: 0, 3: 0}
    for moment in range(COMMANDS):
        if made and dice.random() < 0.3:
            place = dice.choice(list(made))
            yield place, made[place]
            continue
        epoch = min(3, max(1, moment * 3 // COMMANDS + dice.choice([0, 0, 1])))
        numbers[epoch] += 1
        place = (epoch, numbers[epoch])
        version = dice.choice(["step-1", "step-2"])
        made[place] = {
            "path": dice.choice([paths.PREPARE_PATH, paths.UPDATE_WEIGHTS_PATH]),
            "body": {
                "operation": f"rollout-{dice.randrange(3)}",
                "version": version,
                "fence": {"fleet": "f", "pod": "p", "epoch": epoch, "sequence": numbers[epoch]},
            },
        }
        yield place, made[place]


@pytest.mark.parametrize("seed", range(4))
async def test_a_stale_driver_has_no_effect_and_a_repeat_has_none_either(
    fake: Worker, subject: Subject, seed: int
) -> None:
    await subject.serve(subject.versions.first)
    dice, history = random.Random(seed), History()  # noqa: S311 - a seed to repeat it by
    for place, command in commands(dice):
        if dice.random() < 0.1:
            await fake.stop_sidecar()
            await fake.start_sidecar()
            await settled(fake, lambda report: report.stage is Stage.OPEN)
        before = (fake.engine.weights, fake.engine.flushes, (await fake.report()).prepared)

        reply = await subject.admin.post(command["path"], json=command["body"])

        after = (fake.engine.weights, fake.engine.flushes, (await fake.report()).prepared)
        history.check(place, reply, is_changed=before != after)
    assert history.highest == 3
    assert history.effects > 3, "too few commands had an effect to check anything"
    assert len(history.answers) < COMMANDS


async def test_two_drivers_at_once_leave_what_the_later_one_asked_for(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)

    async def drive(epoch: int, version: str) -> list[int]:
        statuses = []
        for sequence in range(1, 9):
            fence = {"fleet": "f", "pod": "p", "epoch": epoch, "sequence": sequence}
            for path in (paths.PREPARE_PATH, paths.UPDATE_WEIGHTS_PATH):
                number = fence | {"sequence": 2 * sequence + (path == paths.UPDATE_WEIGHTS_PATH)}
                reply = await subject.send(path, version, operation=f"of-{epoch}", fence=number)
                statuses.append(reply.status_code)
            await asyncio.sleep(0.01)
        return statuses

    older = asyncio.create_task(drive(1, subject.versions.first))
    await asyncio.sleep(0.05)
    later = await drive(2, subject.versions.second)
    refused = await older

    assert later[-1] == 200
    assert refused[-1] == 409
    report = await fake.report()
    assert (report.proved, report.epoch) == (subject.versions.second, 2)
