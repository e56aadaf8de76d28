"""A trainer's calls in any order: what is opened is what it last asked for, and got.

The oracle is three lines long: which version was asked for last and well, whether the
last update failed, and whether the worker is held.
"""

from dataclasses import dataclass
from random import Random

import pytest

from tests.contract.subject import Subject
from tests.contract.transcripts import placed
from tests.fakes.worker import Worker

CALLS = 14
PAUSES = ("/pause?mode=keep&clear_cache=false", "/sleep?level=0", "/engine/pause_generation")
RESUMES = ("/resume", "/wake_up", "/engine/control/resume_generation")
GOOD = ("step-1", "step-2")
BAD: dict[str, dict[str, object]] = {
    "damaged": {"weight_dir": "{weights}/step-truncated"},
    "elsewhere": {"weight_dir": "/etc"},
    "between GPUs": {"update_info": {}},
    "nothing": {},
}


@dataclass
class Oracle:
    """What must be true of the worker by now."""

    version: str = "step-1"
    is_held: bool = False
    has_failed: bool = False


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_a_trainer_sends_only_what_it_means_is_opened(
    fake: Worker, subject: Subject, seed: int
) -> None:
    random, oracle = Random(seed), Oracle()  # noqa: S311 - an order of calls is no secret
    await subject.serve("step-1")

    for _call in range(CALLS):
        await ACTS[random.choice(list(ACTS))](subject, oracle, random)

        report = await subject.report()
        assert report.proved == oracle.version
        assert fake.engine.gate.is_open is not oracle.is_held


async def _pause(subject: Subject, oracle: Oracle, random: Random) -> None:
    assert (await subject.admin.post(random.choice(PAUSES))).status_code == 200
    oracle.is_held, oracle.has_failed = True, False


async def _resume(subject: Subject, oracle: Oracle, random: Random) -> None:
    reply = await subject.admin.post(random.choice(RESUMES))
    assert reply.status_code == (409 if oracle.has_failed else 200), reply.text
    oracle.is_held = oracle.is_held and oracle.has_failed


async def _update(subject: Subject, oracle: Oracle, random: Random) -> None:
    version = random.choice(GOOD)
    body = {"weight_dir": f"{subject.weights}/{version}"}
    assert (await subject.admin.post("/update_weights", json=body)).status_code == 200
    oracle.version, oracle.has_failed = version, False


async def _fail(subject: Subject, oracle: Oracle, random: Random) -> None:
    body = placed(random.choice(list(BAD.values())), subject)
    reply = await subject.admin.post("/update_weights", json=body)
    assert 400 <= reply.status_code < 500, reply.text
    oracle.has_failed = True


async def _load_nothing(subject: Subject, oracle: Oracle, random: Random) -> None:
    reply = await subject.admin.post("/update_weights", json={"weight_dir": None})
    assert reply.json()["weight_version"] == oracle.version


ACTS = {
    "pause": _pause,
    "resume": _resume,
    "update": _update,
    "fail": _fail,
    "load nothing": _load_nothing,
}
