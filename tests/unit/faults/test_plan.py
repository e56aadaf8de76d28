"""Which plans there are, and which of them are chosen."""

from collections import Counter
from pathlib import Path

from faults import campaign
from faults.modes import MODES
from faults.plan import Place, Plan, Side, spread
from faults.run import Reference

PLACES = [
    *(Place(Side.API, f"PATCH pods qwen-{n}", 1) for n in range(8)),
    *(Place(Side.SIDECAR, f"update_weights qwen-{n}", 1) for n in range(8)),
    *(Place(Side.ENGINE, f"{step} qwen-0", 1) for step in ("pause", "reload", "probe", "open")),
]


def known(*workloads: str) -> dict[str, Reference]:
    return {name: Reference(name, PLACES, {}, set(), {}, 1.0) for name in workloads}


def test_the_crash_modes_strike_every_request() -> None:
    plans = campaign.plans(known("change"), every=False)

    always = {mode.name for mode in MODES.values() if mode.always and mode.side is Side.API}
    for place in PLACES[:8]:
        assert always <= {plan.mode for plan in plans if plan.place == place}


def test_taking_turns_leaves_no_mode_out() -> None:
    plans = campaign.plans(known("change"), every=False)

    assert {(plan.side, plan.mode) for plan in plans} == set(MODES)


def test_every_mode_at_every_request_is_more() -> None:
    some = campaign.plans(known("change"), every=False)
    every = campaign.plans(known("change"), every=True)

    assert {plan.name for plan in some} < {plan.name for plan in every}


def test_a_step_is_struck_only_in_ways_that_fit_it() -> None:
    plans = campaign.plans(known("change"), every=True)

    at_reload = {plan.mode for plan in plans if plan.key == "reload qwen-0"}
    assert "engine-fails" in at_reload
    assert "engine-500" not in at_reload


def test_a_choice_is_the_same_each_time_and_spread_evenly() -> None:
    plans = campaign.plans(known("change", "create", "template"), every=True)

    chosen = spread(plans, 60)

    assert chosen == spread(reversed(plans), 60)
    assert len({plan.name for plan in chosen}) == 60
    modes = Counter(plan.mode for plan in chosen)
    assert set(modes) == {mode.name for mode in MODES.values()}
    workloads = Counter(plan.workload for plan in chosen)
    assert max(workloads.values()) - min(workloads.values()) <= 3


def test_a_choice_of_more_than_there_are_is_all() -> None:
    plans = campaign.plans(known("change"), every=False)

    assert {plan.name for plan in spread(plans, 10_000)} == {plan.name for plan in plans}


def test_a_plan_s_file_is_read_as_the_plan(tmp_path: Path) -> None:
    plan = Plan(
        workload="change", side=Side.API, key="POST events Ready", occurrence=2, mode="conflict"
    )

    assert Plan.read(plan.write(tmp_path)) == plan
