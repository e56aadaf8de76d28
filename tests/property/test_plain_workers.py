"""A pass that looks at exceptional workers for all that is no plain one decides the same."""

from dataclasses import fields, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import (
    Change,
    Exits,
    Progress,
    RejectedTrainer,
    Running,
    Stage,
    Timings,
)
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.rollout.cohorts import hold_left_s
from rlfleet_operator.core.rollout.following import followed, latest
from rlfleet_operator.core.status.fleet import status_of
from rlfleet_operator.core.timers import due_in_s
from tests import workers
from tests.proofs import proof

VERSIONS = ("step-1", "step-2")
CHANGE = Change(
    operation="rollout-1", version="step-2", finished_at=1.0, timings=Timings(window_s=0.2)
)
ADAPTER = {
    "name": "a",
    "version": "v",
    "path": "/a",
    "is_loaded": True,
    "is_declared": True,
}


def _rarely(*others: Any) -> st.SearchStrategy[Any]:
    """Return nothing most of the time: else no worker would be plain."""
    return st.sampled_from([*[None] * 12, *others])


REPORTS = st.builds(
    workers.report,
    st.sampled_from([*[Stage.OPEN] * 12, *Stage]),
    proved=st.sampled_from([*VERSIONS * 6, None]),
    prepared=st.sampled_from([None, *VERSIONS]),
    proof=st.sampled_from([None, proof("step-1"), proof("step-2")]),
    running=_rarely(*(Running(verb=v, operation="rollout-1", version="step-2") for v in Verb)),
    exits=_rarely(*(Exits(version="step-2", operation="rollout-1", count=n) for n in (1, 3))),
    failure=_rarely(*map(workers.problem, (Code.RELOAD_FAILED, Code.PAUSE_FAILED))),
    refusal=_rarely(workers.problem(Code.CHECKPOINT_INVALID)),
    progress=_rarely(
        Progress(version="step-2", bytes_done=1, bytes_total=9),
        Progress(version="step-2", waiting_for="the marker"),
    ),
    paused_s=_rarely(1.0, 100.0),
    adapters=st.sampled_from([*[[]] * 12, [ADAPTER]]),
    rejected_trainer=_rarely(RejectedTrainer(client="c", call="POST /pause", at=workers.MOMENT)),
    last_change=st.sampled_from([None, CHANGE]),
)
PODS: dict[str, st.SearchStrategy[Any]] = {
    "ready": st.sampled_from([*[True] * 12, False]),
    "weights_ready": st.sampled_from([*[True] * 12, False, None]),
    "version_label": st.sampled_from(VERSIONS),
    "terminating": st.sampled_from([*[False] * 12, True]),
    "ends_by": _rarely(workers.MOMENT - 100, workers.MOMENT + 9),
    "phase": st.sampled_from([*["Running"] * 12, "Pending", "Failed"]),
    "trouble": _rarely("engine: CrashLoopBackOff: "),
    "engine_restarts": st.sampled_from([*[0] * 12, 1]),
    "created_at": _rarely(workers.MOMENT - 10),
    "template_hash": st.sampled_from([*[None] * 12, "old"]),
}
WORKERS: dict[str, st.SearchStrategy[Any]] = {
    "report": st.one_of(REPORTS, REPORTS, REPORTS, _rarely()),
    "reachable": st.sampled_from([*[True] * 12, False]),
    "calling": _rarely(*Verb),
    "calling_for": st.sampled_from([None, ("step-2", "rollout-1")]),
    "retry_at": st.sampled_from([*[0.0] * 12, workers.MOMENT + 5]),
    "replace_at": st.sampled_from([*[0.0] * 12, workers.MOMENT + 5]),
    "silence": _rarely("does not answer"),
    "open_since": st.sampled_from([0.0, 5.0]),
    "answered_at": st.sampled_from([0.0, 9.0]),
}
SPECS: list[dict[str, Any]] = [
    {},
    {"rollout": {"maxUnavailable": "50%"}},
    {"rollout": {"strategy": "Barrier"}},
    {"rollout": {"strategy": "Canary", "canary": {"count": 1}}},
    {"rollout": {"partition": 1, "onFailure": "Rollback"}},
    {"rollout": {"paused": True}},
    {"staleness": {"maxSkew": 0, "onViolation": "Unready"}},
    {
        "adapters": [{"name": "a", "version": "v", "path": "/a"}],
        "engine": {"args": ["--enable-lora"]},
    },
    {"engine": {"args": ["--enable-lora"]}},
    {"replicas": 2},
    {"statusWorkerLimit": 2},
    {"weightVersion": None},
]
PHASES = ("Preparing", "Updating", "Refused", "Completed", "Failed", "Superseded")


class Special(Worker):
    """A worker that no pass takes as plain."""

    is_plain = False


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Draw a fleet amid a rollout from step-1 to step-2, or after it."""
    some = []
    for ordinal in range(draw(st.integers(1, 5))):
        pod = {name: draw(values) for name, values in PODS.items()}
        if pod["template_hash"] is None:
            del pod["template_hash"]
        found = {name: draw(values) for name, values in WORKERS.items()}
        made = workers.pod(ordinal, **pod) if draw(st.integers(0, 12)) else None
        some.append(replace(workers.worker(ordinal), pod=made, **found))
    status = workers.recorded("step-2", draw(st.sampled_from(PHASES)))
    spec = {"weightVersion": "step-2"} | draw(st.sampled_from(SPECS))
    return workers.world(*some, status=status, **spec)


def _decided(world: World) -> object:
    step = plan(world)
    newest = latest(world)
    return (
        step,
        status_of(world, step.rollout),
        due_in_s(world),
        hold_left_s(world),
        followed(world, newest, step.rollout),
    )


@settings(max_examples=400, deadline=None)
@given(worlds())
def test_a_pass_decides_the_same_whether_or_not_it_knows_which_workers_are_plain(
    world: World,
) -> None:
    some = [{one.name: getattr(w, one.name) for one in fields(Worker)} for w in world.workers]
    special = replace(world, workers=tuple(Special(**known) for known in some))

    assert not any(w.is_plain for w in special.workers)
    assert _decided(world) == _decided(special)


def test_a_worker_that_takes_traffic_and_has_nothing_else_to_report_is_plain() -> None:
    assert workers.worker().is_plain
    assert workers.world(workers.worker(), workers.worker(1)).exceptional == ()
