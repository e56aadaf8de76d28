"""The table of reasons that the plugin carries."""

import pytest

from rlfleet_contract.worker.problems import Code
from rlfleet_kubectl.core import reasons
from rlfleet_kubectl.errors import PluginError
from rlfleet_view.web import known_reasons
from tests import test_layout


def test_every_reason_and_every_code_can_be_explained() -> None:
    known = known_reasons()

    assert len(known) > 60
    assert {*test_layout.reasons(), *Code} - set(known) == set()


def test_a_reason_is_found_whatever_its_case() -> None:
    lines = reasons.explained(known_reasons(), "checkpointincomplete")

    assert lines[0] == "CheckpointIncomplete (code)"
    assert lines[1].startswith("  do: write the marker last")
    assert lines[2] == "  see docs/how-to/checkpoints.md#markers"


def test_a_reason_that_means_two_things_is_explained_twice() -> None:
    lines = reasons.explained(known_reasons(), "RequestsWaiting")

    assert [line for line in lines if not line.startswith(" ")] == [
        "RequestsWaiting (Ready)",
        "RequestsWaiting (Degraded, Paused, EngineUntested)",
    ]


def test_an_unknown_reason_is_answered_with_close_ones() -> None:
    with pytest.raises(PluginError, match="did you mean CheckpointInvalid"):
        reasons.explained(known_reasons(), "CheckpointInvalit")
