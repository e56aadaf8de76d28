"""The model check's sidecar does what the real one does.

tests/model repeats executor.py, steps.py and watchdog.py in small steps, because a search
cannot copy a running program. Here both go through the same history and must end in the
same report: the real sidecar over the fake engine, and the model's.
"""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.report import Exits, Stage, WorkerReport
from tests.contract.conftest import settled
from tests.contract.subject import Subject
from tests.fakes.behaviour import Behaviour
from tests.fakes.worker import Worker
from tests.model import sidecar
from tests.model.local import UPDATE, Command, Fate, Local

FIRST, SECOND, BROKEN = "step-1", "step-2", "step-truncated"
PATHS = {
    Verb.PREPARE: paths.PREPARE_PATH,
    Verb.PAUSE: paths.PAUSE_PATH,
    Verb.RELOAD: paths.RELOAD_PATH,
    Verb.VERIFY: paths.VERIFY_PATH,
    Verb.RESUME: paths.RESUME_PATH,
    UPDATE: paths.UPDATE_WEIGHTS_PATH,
}


@dataclass(frozen=True)
class Act:
    """One command, or one thing that befalls the worker."""

    what: str
    version: str = SECOND
    through: Verb = Verb.RESUME
    operation: str = "o"


PREPARE, CHANGE = Act(Verb.PREPARE), Act(UPDATE)
PAUSE, RELOAD, VERIFY, RESUME = map(Act, (Verb.PAUSE, Verb.RELOAD, Verb.VERIFY, Verb.RESUME))
KILL, RISE, RESTART = Act("engine dies"), Act("engine comes up"), Act("sidecar is restarted")
PARTS = (Act(UPDATE, through=Verb.PAUSE), Act(UPDATE, through=Verb.VERIFY), CHANGE)

HISTORIES: dict[str, tuple[dict[str, Any], tuple[Act, ...]]] = {
    "prepare and change": ({}, (PREPARE, CHANGE)),
    "a change twice": ({}, (PREPARE, CHANGE, CHANGE)),
    "a change in three parts": ({}, (PREPARE, *PARTS)),
    "a part, and back": ({}, (PREPARE, PARTS[0], Act(Verb.RESUME, FIRST))),
    "a part, and the version after next": ({}, (PREPARE, PARTS[1], Act(UPDATE, FIRST))),
    "a change that was not prepared": ({}, (CHANGE,)),
    "a checkpoint that is refused": ({}, (PREPARE, Act(Verb.PREPARE, BROKEN), CHANGE)),
    "each step by itself": ({}, (PREPARE, PAUSE, RELOAD, VERIFY, RESUME)),
    "steps out of order": ({}, (PREPARE, RELOAD, PAUSE, VERIFY, RESUME, RELOAD)),
    "a pause that fails": ({"pause_fails": True}, (PREPARE, CHANGE)),
    "a reload that fails": ({"reload_fails": True}, (PREPARE, CHANGE, CHANGE)),
    "a reload that fails, and a resume": ({"reload_fails": True}, (PREPARE, CHANGE, RESUME)),
    "a proof that fails": ({"wobbles": True}, (PREPARE, CHANGE, PAUSE)),
    "an engine that dies": ({}, (PREPARE, KILL, CHANGE, RISE, CHANGE)),
    "an engine that dies in its load": ({"dies_in_reload": True}, (PREPARE, CHANGE, RISE)),
    "an engine that is new": ({}, (KILL, RISE, PREPARE, CHANGE)),
    "a sidecar that is restarted": ({}, (PREPARE, RESTART, CHANGE)),
    "a sidecar restarted amid a pause": ({}, (PREPARE, PARTS[0], RESTART, CHANGE)),
    "a sidecar restarted before the gate opens": ({}, (PREPARE, PARTS[1], RESTART, CHANGE)),
    "a sidecar restarted between the steps": ({}, (PREPARE, PAUSE, RELOAD, RESTART, VERIFY)),
}
"""What the engine is made to do wrong, and what happens after the worker served step-1."""

AMID_A_PAUSE = (
    (PREPARE, PARTS[0], RESTART, CHANGE, PREPARE, CHANGE),
    (PREPARE, PARTS[1], RESTART, CHANGE),
)


async def really(fake: Worker, subject: Subject, act: Act) -> WorkerReport:
    """Let it happen to the real sidecar."""
    if act.what == KILL.what:
        await fake.kill_engine()
        return await settled(fake, lambda report: report.stage is Stage.DOWN)
    if act.what == RISE.what:
        await fake.restart_engine()
        return await settled(fake, lambda report: report.stage is Stage.CLOSED)
    if act.what == RESTART.what:
        await fake.stop_sidecar()
        await fake.start_sidecar()
        return await settled(fake, lambda report: report.stage is not Stage.DOWN)
    through = {"through": act.through} if act.what == UPDATE else {}
    fields = {"operation": act.operation, "timeouts": {"pause_s": 5}} | through
    if act.what != UPDATE:
        fields = {"operation": act.operation}
    await subject.send(PATHS[act.what], act.version, **fields)
    return await subject.report()


def modelled(worker: Local, act: Act, fates: dict[str, Fate], lie: dict[str, Any]) -> Local:
    """Let it happen to the model's sidecar."""
    if act.what == KILL.what:
        return sidecar.looked(sidecar.dead(worker))
    if act.what == RISE.what:
        return sidecar.looked(sidecar.risen(worker))
    if act.what == RESTART.what:
        return _at_rest(sidecar.looked(sidecar.restarted(worker)), fates, {})
    command = Command(act.what, act.version, act.operation, through=act.through)
    worker, _ = sidecar.received(worker, command)
    return _at_rest(worker, fates, lie)


def _at_rest(worker: Local, fates: dict[str, Fate], lie: dict[str, Any]) -> Local:
    while worker.running is not None:
        verb, is_begun = worker.running.verbs[0], worker.running.is_begun
        fails = {"pause_fails": Verb.PAUSE, "reload_fails": Verb.RELOAD, "wobbles": Verb.VERIFY}
        is_struck = verb in {fails[name] for name in lie if name in fails} and (
            is_begun or verb == Verb.VERIFY
        )
        if "dies_in_reload" in lie and verb == Verb.RELOAD and is_begun:
            worker, _ = sidecar.faulted(sidecar.dead(worker), is_done=False)
        elif is_struck:
            worker, _ = sidecar.faulted(worker, is_done=True)
        else:
            worker, _ = sidecar.advanced(worker, fates)
    return worker


def fields_of(report: WorkerReport) -> dict[str, object]:
    """Return the fields of a real report that the model has too."""
    failure, refusal = report.failure, report.refusal
    return {
        "stage": report.stage,
        "proved": report.proved,
        "installed": report.installed,
        "prepared": report.prepared,
        "failure": failure and (failure.code, failure.version, failure.operation),
        "refusal": refusal and (refusal.code, refusal.version, refusal.operation),
        "exits": report.exits and (*_load(report.exits), report.exits.count),
    }


def _load(exits: Exits) -> tuple[str, str]:
    return exits.version, exits.operation


def fields_of_model(worker: Local) -> dict[str, object]:
    """Return the same fields of the model's worker."""
    is_up, state = worker.state.stage is not Stage.DOWN, worker.state
    return {
        "stage": state.stage,
        "proved": state.proved if is_up else None,
        "installed": state.installed if is_up else None,
        "prepared": state.prepared,
        "failure": worker.failure and tuple(worker.failure),
        "refusal": worker.refusal and tuple(worker.refusal),
        "exits": worker.exits,
    }


@pytest.mark.parametrize(("lie", "history"), HISTORIES.values(), ids=HISTORIES)
async def test_the_model_s_sidecar_ends_where_the_real_one_does(
    fake: Worker, subject: Subject, lie: dict[str, Any], history: tuple[Act, ...]
) -> None:
    await demand_same(fake, subject, lie, history, has_cache=True)


class TestWithoutCache:
    """What is read in place is forgotten with the sidecar that read it."""

    @pytest.fixture
    def identity(self) -> dict[str, Any]:
        return {"cache_dir": None}

    @pytest.mark.parametrize("history", AMID_A_PAUSE)
    async def test_the_model_s_sidecar_forgets_what_the_real_one_does(
        self, fake: Worker, subject: Subject, history: tuple[Act, ...]
    ) -> None:
        await demand_same(fake, subject, {}, history, has_cache=False)


async def demand_same(
    fake: Worker,
    subject: Subject,
    lie: dict[str, Any],
    history: tuple[Act, ...],
    *,
    has_cache: bool,
) -> None:
    fates = dict.fromkeys(("base", FIRST, SECOND), Fate.GOOD) | {BROKEN: Fate.REFUSED}
    worker = sidecar.looked(sidecar.risen(Local(has_cache=has_cache)))
    for act in (Act(Verb.PREPARE, FIRST), Act(UPDATE, FIRST)):
        await really(fake, subject, act)
        worker = modelled(worker, act, fates, {})
    fake.engine.behaviour = replace(Behaviour(token_s=0.001), **lie)

    for act in history:
        report = await really(fake, subject, act)
        worker = modelled(worker, act, fates, lie)

        assert fields_of_model(worker) == fields_of(report), act
        if report.stage is not Stage.DOWN:
            assert worker.engine.is_open == fake.engine.gate.is_open
        assert await subject.is_ready() == worker.state.serving
