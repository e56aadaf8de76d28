"""A window is compared with vLLM's own reload, never with rlfleet's."""

from bench.cluster import LARGE, TINY
from bench.window import Windows, part_of
from rlfleet_contract.worker.report import Timings


def windows(window_s: float, reload_s: float, bare_s: float) -> Windows:
    return Windows([Timings(window_s=window_s, reload_s=reload_s)] * 3, [bare_s] * 3)


def test_a_slower_reload_of_our_own_makes_no_window_look_better() -> None:
    quick = part_of({LARGE.name: windows(0.7, 0.5, 0.5)})
    slow = part_of({LARGE.name: windows(2.0, 1.8, 0.5)})

    assert quick.figures["window_over_bare_reload"] == 1.4
    assert slow.figures["window_over_bare_reload"] == 4.0


def test_a_proof_after_the_window_counts_for_the_replies() -> None:
    timings = Timings(reload_s=0.5, verify_s=0.3, window_s=0.6, withheld_s=0.2)

    found = part_of({LARGE.name: Windows([timings], [0.5])})

    assert found.figures == {"window_over_bare_reload": 1.2, "replies_over_bare_reload": 1.6}
    rows = {row["step"]: row["median"] for row in found.detail["tables"]["large, milliseconds"]}
    assert rows["between the steps"] == 0
    assert rows["until replies are sent"] == 800


def test_of_the_tiny_model_the_part_of_our_own_counts() -> None:
    found = part_of({TINY.name: windows(0.08, 0.02, 0.03)})

    assert found.figures == {"window_minus_bare_reload_ms": 50.0}
    rows = found.detail["tables"]["tiny, milliseconds"]
    assert {row["step"]: row["median"] for row in rows}["(vLLM's bare reload)"] == 30
