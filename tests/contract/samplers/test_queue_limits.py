"""A client that repeats without an end takes the places of its own kind of request only."""

import asyncio
from pathlib import Path
from typing import Any

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.http.request_limit import COMMANDS
from tests.contract.subject import Subject
from tests.fakes.behaviour import Behaviour
from tests.fakes.checkpoints import write_version
from tests.fakes.worker import Worker

MORE = 4


async def test_more_commands_of_one_kind_are_turned_away_and_nothing_else_is(
    subject: Subject, weights: Path
) -> None:
    waiting = [
        asyncio.create_task(
            subject.admin.post(paths.PREPARE_PATH, json={"operation": "one", "version": "step-7"})
        )
        for _ in range(COMMANDS + MORE)
    ]
    refused = [await one for one in await first(MORE, waiting)]

    assert {reply.status_code for reply in refused} == {429}
    assert {reply.json()["code"] for reply in refused} == {Code.TOO_MANY_REQUESTS}
    assert {reply.headers["retry-after"] for reply in refused} == {"1"}
    assert (await subject.report()).progress is not None
    await subject.refused(Code.NOT_PREPARED, paths.UPDATE_WEIGHTS_PATH, subject.versions.first)

    write_version(weights, "step-7", seed=7)
    replies = await asyncio.gather(*waiting)
    assert sorted(reply.status_code for reply in replies) == [200] * COMMANDS + [429] * MORE
    assert (await subject.serve("step-7")).proved == "step-7"


async def test_a_trainer_is_turned_away_in_its_own_form(fake: Worker, served: Subject) -> None:
    fake.engine.behaviour = Behaviour(pause_s=0.3)
    calls = [asyncio.create_task(served.admin.post("/pause")) for _ in range(COMMANDS + 1)]

    replies = await asyncio.gather(*calls)

    (refused,) = [reply for reply in replies if reply.status_code != 200]
    assert (refused.status_code, refused.json()["status"]) == (429, "error")
    assert refused.headers["retry-after"] == "1"
    assert (await served.admin.post("/resume")).status_code == 200


async def first(count: int, tasks: "list[asyncio.Task[Any]]") -> "list[asyncio.Task[Any]]":
    """Wait until so many have ended."""
    done: set[asyncio.Task[Any]] = set()
    while len(done) < count:
        ended, _ = await asyncio.wait(
            set(tasks) - done, timeout=30, return_when=asyncio.FIRST_COMPLETED
        )
        assert ended, "none of them was answered"
        done |= ended
    return [task for task in tasks if task in done]
