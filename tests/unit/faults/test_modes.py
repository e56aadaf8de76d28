"""Where a rollout that stopped safely is right, and where all must end as without the fault."""

import pytest

from faults.modes import may_stop
from faults.plan import Place, Plan, Side

CHANGE = ("close", "pause", "flush", "reload", "resume", "probe", "open")


def passed(*steps: str, worker: str = "qwen-0") -> list[Place]:
    return [Place(Side.ENGINE, f"{step} {worker}", 1) for step in steps]


def plan(mode: str, step: str = "close", side: Side = Side.ENGINE) -> Plan:
    return Plan(workload="change", side=side, key=f"{step} qwen-0", occurrence=2, mode=mode)


@pytest.mark.parametrize(
    ("struck", "before", "is_barrier", "expected"),
    [
        (plan("engine-kill-after"), CHANGE[:4], True, False),
        (plan("engine-500"), (), False, False),
        (plan("engine-500"), CHANGE, False, False),
        (plan("engine-500"), CHANGE[:4], False, True),
        (plan("engine-hangs", "open"), CHANGE[:6], False, True),
        (plan("engine-hangs", "pause"), ("close",), False, False),
        (plan("engine-hangs", "pause"), ("close",), True, True),
        (plan("sidecar-kill-after"), CHANGE[:4], True, False),
        (plan("operator-kill"), CHANGE[:4], True, False),
    ],
    ids=[
        "an engine that dies",
        "before anything",
        "in the next change",
        "behind the reload",
        "at the gate",
        "before the reload",
        "before the reload, all together",
        "a sidecar that dies",
        "an operator that dies",
    ],
)
def test_what_may_stop_a_rollout(
    struck: Plan, before: tuple[str, ...], *, is_barrier: bool, expected: bool
) -> None:
    assert may_stop(struck, passed(*before), is_barrier=is_barrier) is expected


def test_another_worker_s_reload_is_not_this_one_s() -> None:
    other = passed("reload", worker="qwen-1")

    assert not may_stop(plan("engine-500"), other, is_barrier=False)
