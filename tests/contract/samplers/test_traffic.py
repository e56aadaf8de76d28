"""Requests during a change: they wait, continue, or get an error; none is lost."""

import asyncio
from typing import Any

import httpx

from rlfleet_contract import paths
from rlfleet_contract.worker.report import Stage
from tests.contract.subject import Subject
from tests.patience import given_up
from tests.proofs import foreign

LONG: dict[str, Any] = {
    "max_tokens": 900,
    "min_tokens": 900,
    "ignore_eos": True,
    "return_token_ids": True,
}


async def started(subject: Subject) -> "asyncio.Task[httpx.Response]":
    """Begin a long completion and give the engine the time to begin it, too."""
    task = asyncio.create_task(subject.complete(**LONG))
    done, _ = await asyncio.wait([task], timeout=0.3)
    assert not done, task
    return task


async def until_in_flight(subject: Subject, *, is_any: bool) -> None:
    """Wait until the sidecar has seen requests at its engine, or no longer any."""
    async with asyncio.timeout(30):
        while bool((await subject.report()).in_flight) is not is_any:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def choice_of(reply: httpx.Response) -> dict[str, Any]:
    assert reply.status_code == 200, reply.text
    found = reply.json()["choices"][0]
    assert isinstance(found, dict)
    return found


async def test_requests_during_a_pause_wait_and_are_answered_by_the_new_weights(
    subject: Subject,
) -> None:
    await subject.serve(subject.versions.second)
    expected = choice_of(await subject.complete(max_tokens=4, return_token_ids=True))
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)
    await subject.ok(paths.PAUSE_PATH, subject.versions.second)

    waiting = asyncio.create_task(subject.complete(max_tokens=4, return_token_ids=True))
    done, _ = await asyncio.wait([waiting], timeout=0.2)
    assert not done
    await subject.ok(paths.UPDATE_WEIGHTS_PATH, subject.versions.second)

    assert choice_of(await waiting)["token_ids"] == expected["token_ids"]


async def test_a_reply_names_the_version_whose_weights_made_it(subject: Subject) -> None:
    for version in (subject.versions.first, subject.versions.second):
        await subject.serve(version)

        choice = await subject.generate(tokens=4)

        assert choice["weight_versions"] == [{"version": version, "start": 0, "end": 4}]


async def test_a_reply_that_was_frozen_names_both_versions(subject: Subject) -> None:
    first, second = subject.versions.first, subject.versions.second
    await subject.serve(first)
    request = asyncio.create_task(subject.generate(tokens=900))
    await until_in_flight(subject, is_any=True)
    await asyncio.sleep(0.2)

    await subject.serve(second)

    old, new = (await request)["weight_versions"]
    assert (old["version"], old["start"]) == (first, 0)
    assert (new["version"], new["end"]) == (second, 900)
    assert 0 < old["end"] == new["start"] < 900


async def test_keep_freezes_requests_and_they_continue_afterwards(subject: Subject) -> None:
    await subject.serve(subject.versions.first)
    request = await started(subject)

    await subject.ok(paths.PAUSE_PATH, subject.versions.second, mode="Keep")
    done, _ = await asyncio.wait([request], timeout=0.5)
    assert not done
    await subject.serve(subject.versions.second)

    assert len(choice_of(await request)["token_ids"]) == LONG["max_tokens"]


async def test_wait_lets_requests_end_first(subject: Subject) -> None:
    await subject.serve(subject.versions.first)
    request = await started(subject)

    report = await subject.ok(paths.PAUSE_PATH, subject.versions.second, mode="Wait")

    assert report.stage is Stage.PAUSED
    assert len(choice_of(await request)["token_ids"]) == LONG["max_tokens"]
    await subject.ok(paths.RESUME_PATH, subject.versions.first)


async def test_abort_ends_requests_with_a_mark(subject: Subject) -> None:
    await subject.serve(subject.versions.first)
    request = await started(subject)

    await subject.ok(paths.PAUSE_PATH, subject.versions.second, mode="Abort")

    assert choice_of(await request)["finish_reason"] == "abort"
    await subject.ok(paths.RESUME_PATH, subject.versions.first)


async def test_requests_that_an_unproved_engine_answers_are_ended_when_its_proof_fails(
    subject: Subject,
) -> None:
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)
    request = asyncio.create_task(subject.complete(**LONG | {"max_tokens": 900, "min_tokens": 900}))
    await asyncio.sleep(0.1)

    reply = await subject.send(
        paths.UPDATE_WEIGHTS_PATH,
        subject.versions.second,
        expected=foreign(subject.versions.second),
    )

    assert reply.status_code == 502
    assert choice_of(await request)["finish_reason"] == "abort"
    await subject.serve(subject.versions.first)


async def test_an_answer_that_ends_while_its_weights_are_proved_is_no_good_one_if_they_fail(
    subject: Subject,
) -> None:
    first, second = subject.versions.first, subject.versions.second
    await subject.serve(first)
    await subject.ok(paths.PREPARE_PATH, second)
    # Some of them end in the proof, whenever that is.
    lengths = range(60, 900, 40)
    requests = [asyncio.create_task(subject.generate(tokens=length)) for length in lengths]
    await asyncio.sleep(0.1)

    reply = await subject.send(paths.UPDATE_WEIGHTS_PATH, second, expected=foreign(second))

    assert reply.status_code == 502
    choices = await asyncio.gather(*requests)
    for choice in choices:
        makers = {span["version"] for span in choice["weight_versions"]}
        assert choice["finish_reason"] == "abort" or makers == {first}
    assert {choice["finish_reason"] for choice in choices} >= {"abort"}
    await subject.serve(first)


async def test_a_client_that_leaves_while_it_waits_is_forgotten(subject: Subject) -> None:
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PAUSE_PATH, subject.versions.second)
    request = await started(subject)
    await until_in_flight(subject, is_any=True)

    await given_up(request)

    await until_in_flight(subject, is_any=False)
    await subject.ok(paths.RESUME_PATH, subject.versions.first)
