"""The fleets of examples/models have what docs/reference/sizes.md says that they need."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.docs import sizes_page
from dev.docs.sizes_page import EXAMPLES, Example, Measured
from rlfleet_operator.core.manifests import quantity
from rlfleet_operator.crd.fleet_spec import FleetSpec

MODELS = Path(__file__).resolve().parents[4] / "examples" / "models"


def gib(size: Any) -> float:
    return quantity.in_bytes(size) / sizes_page.GIB


def spec_of(one: Example) -> FleetSpec:
    found = yaml.safe_load((MODELS / one.folder / "fleet.yaml").read_text())
    return FleetSpec.model_validate(found["spec"])


def test_every_example_has_a_row() -> None:
    assert {path.parent.name for path in MODELS.glob("*/fleet.yaml")} == {
        one.folder for one in EXAMPLES
    }


@pytest.mark.parametrize("one", EXAMPLES, ids=lambda one: one.folder)
def test_an_example_has_room_for_three_versions_and_the_next_one_in_memory(one: Example) -> None:
    spec = spec_of(one)
    assert spec.weights is not None
    memory = gib(spec.engine.resources.limits["memory"])

    assert spec.engine.tensor_parallel_size == one.ranks
    assert gib(spec.weights.cache.size) >= one.cache_gib
    # vLLM's own processes take some GiB a rank.
    assert memory >= one.gib + 4 * one.ranks


def test_constants_are_the_bench_s() -> None:
    window = {
        f"{kind}, milliseconds": [{"step": "pause", "median": 9}, {"step": "window", "median": ms}]
        for kind, ms in (("tiny", 80.0), ("large", 1070.0))
    }
    seconds = {"free": {"prepare": 0.33}, "busy": {"prepare": 0.99}}
    results = {
        "parts": {
            "window": {"detail": {"tables": window}},
            "copying": {"detail": {"seconds": seconds}},
        },
        "figures": {"delta_apply_gib_s": 0.5, "delta_read_ratio": 0.026},
    }

    found = Measured.of(results)

    assert found.window_s_per_gib == pytest.approx(1.0)
    assert found.window_s(2.0) == pytest.approx(2.08)
    assert (found.prepare_gib_s, found.busy_gib_s) == pytest.approx((3.0, 1.0))
