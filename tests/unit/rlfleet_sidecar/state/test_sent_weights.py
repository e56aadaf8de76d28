"""When weights that a trainer sends may be taken, and what they are called."""

import re
from pathlib import Path

import pytest

from rlfleet_contract.paths import VERSION_PATTERN
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage, Target
from rlfleet_sidecar.checkpoints.layouts import Layouts
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.state import sent_weights
from rlfleet_sidecar.state.stage_machine import State

WHOLE = {Stage.OPEN, Stage.CLOSED, Stage.PAUSED, Stage.PROVED}


def code_of(error: pytest.ExceptionInfo[SidecarError]) -> Code:
    return error.value.code


@pytest.mark.parametrize("stage", Stage)
def test_a_group_forms_where_an_engine_is_whole(stage: Stage) -> None:
    if stage in WHOLE:
        sent_weights.demand_groupable(State(stage=stage, boot="b"))
        return
    with pytest.raises(SidecarError) as error:
        sent_weights.demand_groupable(State(stage=stage, boot="b"))
    assert code_of(error) is (Code.ENGINE_IN_DOUBT if stage is Stage.DOUBT else Code.WRONG_STAGE)


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("group", [None, "a", "b"])
def test_an_update_begins_paused_and_in_a_group_of_this_boot(
    stage: Stage, group: str | None
) -> None:
    state = State(stage=stage, boot="b")
    if stage is Stage.PAUSED and group == "b":
        sent_weights.demand_startable(state, group)
        return
    with pytest.raises(SidecarError) as error:
        sent_weights.demand_startable(state, group)
    assert code_of(error) is (Code.ENGINE_IN_DOUBT if stage is Stage.DOUBT else Code.WRONG_STAGE)


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("is_session", [True, False])
def test_a_part_belongs_to_an_update_that_was_begun(stage: Stage, *, is_session: bool) -> None:
    if stage is Stage.LOADING and is_session:
        sent_weights.demand_started(State(stage=stage), is_session=is_session)
        return
    with pytest.raises(SidecarError) as error:
        sent_weights.demand_started(State(stage=stage), is_session=is_session)
    assert code_of(error) is (Code.ENGINE_IN_DOUBT if stage is Stage.DOUBT else Code.WRONG_STAGE)


def test_a_fleet_with_a_target_rejects_its_trainer() -> None:
    sent_weights.demand_unowned(None)
    with pytest.raises(SidecarError, match=r"target is step-3 \(set by spec\.weightVersion"):
        sent_weights.demand_unowned(Target("step-3", "spec.weightVersion"))


@pytest.mark.parametrize(("named", "version"), [("7", "sent-7"), (None, "sent-f"), ("", "sent-f")])
def test_what_is_sent_has_a_name_of_its_own(named: str | None, version: str) -> None:
    found = sent_weights.version_of(named, "f")

    assert found == version
    assert re.fullmatch(VERSION_PATTERN, found)
    assert sent_weights.label_of(found) == (named or "f")
    assert (sent_weights.label_of("step-1"), sent_weights.label_of(None)) == ("step-1", None)


@pytest.mark.parametrize("named", ["../x", "a/b", "a ", "x" * 124, "a\n"])
def test_a_name_that_is_no_name_is_refused(named: str) -> None:
    with pytest.raises(SidecarError, match=r"^weight_version: ") as error:
        sent_weights.version_of(named, "f")

    assert code_of(error) is Code.INVALID_REQUEST


def test_a_directory_named_like_sent_weights_is_no_version(tmp_path: Path) -> None:
    name = f"{sent_weights.PREFIX}step-1"
    (tmp_path / "weights" / name).mkdir(parents=True)
    settings = SidecarSettings(
        model_name="m", model_path=tmp_path, weights_path=f"{tmp_path}/weights/{{version}}"
    )
    layouts = Layouts.of(settings)

    with pytest.raises(SidecarError, match="weights sent by a trainer") as named:
        layouts.version_of(f"{tmp_path}/weights/{name}")
    with pytest.raises(SidecarError, match="no directory") as opened, layouts.open(name, None):
        pytest.fail("it was opened")

    assert (named.value.code, opened.value.code) == (Code.PATH_REFUSED, Code.VERSION_NOT_FOUND)
