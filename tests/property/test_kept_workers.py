"""A worker that is kept between passes says what a new one of the same facts says."""

import asyncio
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.report import Exits, Running, Stage
from rlfleet_operator.core.model.world import Worker
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.status.fleet import status_of
from rlfleet_operator.workers.client import WorkerClient
from rlfleet_operator.workers.connection import WorkerConnection
from tests import workers

DERIVED = [name for name, one in vars(Worker).items() if isinstance(one, cached_property)]
REPORTS = st.builds(
    workers.report,
    st.sampled_from(Stage),
    proved=st.sampled_from([None, "step-1", "step-2"]),
    prepared=st.sampled_from([None, "step-2"]),
    running=st.sampled_from(
        [None, *(Running(verb=v, operation="rollout-1", version="step-2") for v in Verb)]
    ),
    exits=st.sampled_from([None, Exits(version="step-2", operation="rollout-1", count=1)]),
)
PODS = st.builds(workers.pod, ready=st.booleans(), terminating=st.booleans())
NEWS = st.one_of(
    st.tuples(st.just("report"), REPORTS),
    st.tuples(st.just("pod"), PODS),
    st.tuples(st.just("reachable"), st.booleans()),
    st.tuples(st.just("calling"), st.sampled_from([None, *Verb])),
    st.tuples(st.just("calling_for"), st.sampled_from([None, ("step-2", "rollout-1")])),
    st.tuples(st.just("silence"), st.sampled_from([None, "does not answer"])),
    st.tuples(st.just("fleet_paused"), st.booleans()),
    st.tuples(st.just("nothing"), st.none()),
)


def derived(worker: Worker) -> dict[str, Any]:
    return {name: getattr(worker, name) for name in DERIVED}


@settings(max_examples=100, deadline=None)
@given(st.lists(NEWS, max_size=8))
def test_what_is_kept_equals_what_is_computed_from_scratch(news: list[tuple[str, Any]]) -> None:
    asyncio.run(_passes(news))


async def _passes(news: list[tuple[str, Any]]) -> None:
    client = WorkerClient("http://127.0.0.1:1", asyncio.Semaphore(1))
    contact = WorkerConnection(client, workers.pod())
    fleet_paused, before = False, None
    for name, value in [("nothing", None), *news]:
        if name == "fleet_paused":
            fleet_paused = value
        elif name != "nothing":
            setattr(contact, name, value)
        kept = contact.worker("qwen-0", 0, contact.pod, 0.0, fleet_paused, 0.0, is_dated=True)
        made = Worker(**{one.name: getattr(kept, one.name) for one in fields(Worker)})

        assert (kept.report, kept.pod, kept.reachable) == (
            contact.report,
            contact.pod,
            contact.reachable,
        )
        assert (kept.silence, kept.calling, kept.fleet_paused) == (
            contact.silence,
            contact.busy_with,
            fleet_paused,
        )
        assert derived(kept) == derived(made)
        assert _step(kept) == _step(made)
        assert name != "nothing" or before is None or kept is before
        before = kept
    await client.close()


def _step(worker: Worker) -> object:
    """Return what a pass makes of this worker and another one."""
    status = workers.recorded("step-2", "Updating")
    world = workers.world(worker, workers.worker(1), status=status, weightVersion="step-2")
    step = plan(world)
    return step, status_of(world, step.rollout)


def test_a_changed_copy_of_a_worker_keeps_nothing() -> None:
    open_ = workers.worker()
    assert open_.is_open

    assert not replace(open_, reachable=False).is_open
