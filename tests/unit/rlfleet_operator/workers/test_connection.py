"""When a command's answer is waited for no longer."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise

import pytest

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Running, Stage
from rlfleet_operator.core.model import commands
from rlfleet_operator.core.model.world import Worker
from rlfleet_operator.errors import Unreachable, WorkerProblem
from rlfleet_operator.workers.client import WorkerClient
from rlfleet_operator.workers.connection import WorkerConnection
from tests import workers


@pytest.fixture
async def contact() -> AsyncIterator[WorkerConnection]:
    """A worker that was sent a command at moment 0 and has not answered it."""
    client = WorkerClient("http://127.0.0.1:1", asyncio.Semaphore(1))
    command = asyncio.ensure_future(asyncio.sleep(60))
    yield WorkerConnection(client, workers.pod(), workers.report(), reachable=True, command=command)
    command.cancel()
    await client.close()


def is_given_up(contact: WorkerConnection) -> bool:
    return contact.command is not None and bool(contact.command.cancelling())


async def test_a_command_whose_worker_is_idle_is_given_up(contact: WorkerConnection) -> None:
    contact.give_up_lost(4.0)
    assert not is_given_up(contact)

    contact.give_up_lost(6.0)
    assert is_given_up(contact)


async def test_a_command_that_is_carried_out_is_waited_for(contact: WorkerConnection) -> None:
    running = Running(verb=Verb.RELOAD, operation="rollout-1", version="step-1")
    contact.learn(workers.report(running=running), 1.0)

    contact.give_up_lost(600.0)
    assert not is_given_up(contact)

    contact.learn(workers.report(), 600.0)
    contact.give_up_lost(604.0)
    assert not is_given_up(contact)

    contact.learn(workers.report(), 604.0)
    contact.give_up_lost(606.0)
    assert is_given_up(contact)


async def test_to_ask_whether_an_answer_is_lost_changes_nothing(contact: WorkerConnection) -> None:
    running = Running(verb=Verb.RELOAD, operation="rollout-1", version="step-1")
    contact.learn(workers.report(running=running), 1.0)

    assert not contact.has_lost_answer(600.0)

    assert contact.idle_since == 1.0


async def test_silence_says_nothing_about_a_command(contact: WorkerConnection) -> None:
    contact.reachable = False

    contact.give_up_lost(600.0)

    assert not is_given_up(contact)


async def test_a_command_that_fails_for_hours_is_sent_again_at_the_longest_interval(
    contact: WorkerConnection,
) -> None:
    waits = [contact.retry_after(Unreachable("nobody")) for _ in range(2000)]

    assert waits[:5] == [1, 2, 4, 8, 15]
    assert set(waits[5:]) == {15}


async def test_adapters_that_fail_in_turn_wait_as_long_as_one_that_fails_alone(
    contact: WorkerConnection,
) -> None:
    def waited_s(verb: Verb, operation: str) -> float:
        contact.begin(verb, ("v1", operation), 0.0)
        return contact.retry_after(Unreachable("nobody"))

    in_turn = [waited_s(Verb.ADAPT, f"adapter-{n % 2}") for n in range(5)]
    changes = [waited_s(Verb.RELOAD, f"rollout-{n}") for n in (1, 1, 2)]

    assert in_turn == [1, 2, 4, 8, 15]
    assert changes == [1, 2, 1]
    assert waited_s(Verb.ADAPT, "adapter-0") == 1


REJECTED = {
    version: workers.problem(Code.ENGINE_UNFAITHFUL, version) for version in ("step-1", "step-2")
}


async def test_a_worker_that_rejects_both_versions_of_a_rollout_tries_them_at_growing_intervals(
    contact: WorkerConnection,
) -> None:
    """It goes to the old version when it rejects the new one, and back."""
    contact.command = None
    contact.learn(workers.report(Stage.CLOSED), 0.0)
    sent: list[tuple[float, str]] = []
    for moment in (tenth / 10 for tenth in range(10, 1200)):
        worker = contact.worker("w", 0, contact.pod, contact.retry_at, False, 0.0, is_dated=False)  # noqa: FBT003
        seen = replace(workers.world(worker), moment=moment)
        goal = "step-1" if worker.refused("step-2", "rollout-1") else "step-2"
        for command in commands.prepare(worker, goal, "rollout-1", seen):
            sent.append((moment, command.version))
            contact.begin(Verb.PREPARE, (command.version, command.operation), moment)
            contact.learn(workers.report(Stage.CLOSED, refusal=REJECTED[goal]), moment)
            contact.settle()
            contact.retry_at = moment + contact.retry_after(WorkerProblem(REJECTED[goal]))

    assert [version for _, version in sent[:4]] == ["step-2", "step-1", "step-2", "step-1"]
    waits = [after - before for (before, _), (after, _) in pairwise(sent)]
    assert waits[0] < 1
    assert min(waits[5:]) > 14.9
    assert worker.rejection_of("step-2", "rollout-1") == REJECTED["step-2"]
    assert worker.rejection_of("step-2", "rollout-2") is None

    contact.learn(workers.report(Stage.CLOSED, prepared="step-1"), 1200.0)
    assert contact.rejections == {}


# --- a sidecar that does not answer --------------------------------------------------------------


REFUSED, LATE = "state: ConnectError: refused", "state: ConnectTimeout: "
SILENT = "sidecar at 127.0.0.1:1 does not answer: "


async def test_a_silence_is_reported_once_it_has_lasted(contact: WorkerConnection) -> None:
    contact.miss(REFUSED, 100.0)
    contact.miss(REFUSED, 129.0)
    assert contact.silence is None

    contact.miss(REFUSED, 130.0)
    assert contact.silence == SILENT + REFUSED


async def test_an_answer_ends_a_silence_and_the_next_starts_at_zero(
    contact: WorkerConnection,
) -> None:
    contact.miss(REFUSED, 100.0)
    contact.miss(REFUSED, 130.0)

    contact.end_silence()
    assert contact.silence is None

    contact.miss(REFUSED, 140.0)
    contact.miss(REFUSED, 169.0)
    assert contact.silence is None


async def test_a_silence_counts_from_when_the_containers_run(contact: WorkerConnection) -> None:
    contact.pod = workers.pod(phase="Pending")
    contact.miss(REFUSED, 0.0)
    contact.miss(REFUSED, 100.0)
    assert (contact.error, contact.silence) == (None, None)

    contact.pod = workers.pod()
    contact.miss(REFUSED, 101.0)
    assert (contact.error, contact.silence) == (REFUSED, None)

    contact.miss(REFUSED, 131.0)
    assert contact.silence == SILENT + REFUSED


async def test_alternating_errors_are_one_silence_and_a_lasting_one_replaces_the_message(
    contact: WorkerConnection,
) -> None:
    seen = set()
    for second in range(90):
        contact.miss((REFUSED, LATE)[second % 2], 100.0 + second)
        seen.add(contact.silence)
    assert seen == {None, SILENT + REFUSED}

    contact.miss(LATE, 190.0)
    contact.miss(LATE, 218.0)
    assert contact.silence == SILENT + REFUSED

    contact.miss(LATE, 220.0)
    assert contact.silence == SILENT + LATE


async def test_it_is_known_since_when_a_worker_is_open(contact: WorkerConnection) -> None:
    seen = []
    for now, stage in enumerate([Stage.CLOSED, Stage.OPEN, Stage.OPEN, Stage.DOUBT, Stage.OPEN], 1):
        contact.learn(workers.report(stage), float(now))
        seen.append((contact.open_since, contact.answered_at))

    assert seen == [(0, 1), (2, 2), (2, 3), (0, 4), (5, 5)]


async def test_a_watched_sidecar_is_not_polled_when_its_pod_changes(
    contact: WorkerConnection,
) -> None:
    contact.is_watched = True
    contact.see(workers.pod(ready=False))
    assert not contact.hurried.is_set()

    contact.is_watched = False
    contact.see(workers.pod(engine_restarts=1))
    assert contact.hurried.is_set()


async def test_a_sign_of_life_makes_another_worker_only_where_its_time_counts(
    contact: WorkerConnection,
) -> None:
    def worker(*, is_dated: bool) -> Worker:
        return contact.worker(
            "qwen-0", 0, contact.pod, 0.0, fleet_paused=False, replace_at=0.0, is_dated=is_dated
        )

    contact.confirm(7.0)
    assert worker(is_dated=True).answered_at == 7.0
    contact.confirm(8.0)
    assert worker(is_dated=True).answered_at == 8.0

    kept = worker(is_dated=False)
    contact.confirm(9.0)
    assert kept.answered_at == 0.0
    assert worker(is_dated=False) is kept
