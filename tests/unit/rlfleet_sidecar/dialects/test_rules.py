"""What a trainer's call means, as tables."""

import pytest

from rlfleet_contract.worker.commands import PauseMode, Verb
from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.checkpoints.safe_paths import Layout
from rlfleet_sidecar.dialects import rules
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.state.stage_machine import State

AT_REST = {Stage.DOWN, Stage.CLOSED, Stage.OPEN}
FAILURE = Problem.of(Code.CHECKPOINT_INVALID, "why", version="step-2")


@pytest.mark.parametrize(
    ("word", "mode"),
    [
        (None, PauseMode.KEEP),
        ("keep", PauseMode.KEEP),
        ("wait", PauseMode.WAIT),
        ("abort", PauseMode.ABORT),
    ],
)
def test_a_mode_is_one_of_vllm_s_words(word: str | None, mode: PauseMode) -> None:
    assert rules.mode_of(word) is mode


@pytest.mark.parametrize(
    ("told", "engine_s"),
    [
        ("r1", "chatcmpl-r1"),
        ("r1", "generate-tokens-r1"),
        ("r1", "cmpl-r1-0"),
        ("chatcmpl-r1", "chatcmpl-r1"),
        ("cmpl-r1", "cmpl-r1-0"),
        ("generate-tokens-r1", "generate-tokens-r1"),
    ],
)
def test_an_engine_knows_a_request_by_the_id_that_was_sent_or_returned(
    told: str, engine_s: str
) -> None:
    assert engine_s in rules.engine_ids(told)


@pytest.mark.parametrize("word", ["", "Keep", "later", "keep "])
def test_another_mode_is_refused(word: str) -> None:
    with pytest.raises(SidecarError, match="mode"):
        rules.mode_of(word)


@pytest.mark.parametrize(
    ("led_by", "expected"),
    [
        (None, "new"),
        (("trainer-1", None), "trainer-1"),
        (("trainer-1", 3), "new"),
        (("rollout-1", 3), "new"),
        (("a person's", None), "new"),
    ],
)
def test_a_call_belongs_to_the_change_that_a_trainer_leads(
    led_by: tuple[str, int | None] | None, expected: str
) -> None:
    assert rules.operation_of(led_by, "new") == expected


@pytest.mark.parametrize("stage", Stage)
def test_a_paused_worker_stays_so_after_an_update(stage: Stage) -> None:
    assert rules.through(State(stage)) is (Verb.RESUME if stage in AT_REST else Verb.VERIFY)
    assert rules.is_paused(State(stage)) is (stage is not Stage.OPEN)


@pytest.mark.parametrize("stage", Stage)
def test_only_what_a_trainer_means_to_open_is_opened(stage: Stage) -> None:
    state = State(stage, proved="step-1")
    rules.demand_resumable(state, None, None)
    with pytest.raises(SidecarError, match="step-9 has not ended"):
        rules.demand_resumable(state, None, "step-9")
    with pytest.raises(SidecarError, match=r"CheckpointInvalid: why.*step-1") as caught:
        rules.demand_resumable(state, FAILURE, None)
    assert caught.value.code.status == 409


@pytest.mark.parametrize(
    ("state", "version"),
    [
        (State(Stage.OPEN, installed="step-2", proved="step-2"), "step-2"),
        (State(Stage.CLOSED, installed="base"), "base"),
        (State(Stage.DOUBT), "base"),
    ],
)
def test_a_pause_is_about_what_the_engine_holds(state: State, version: str) -> None:
    assert rules.loaded(state) == version


@pytest.mark.parametrize("stage", AT_REST)
def test_an_update_of_a_worker_that_is_not_paused_is_rejected(stage: Stage) -> None:
    with pytest.raises(SidecarError, match="does not answer" if stage is Stage.DOWN else "pause"):
        rules.demand_paused(State(stage))


@pytest.mark.parametrize("stage", set(Stage) - AT_REST)
def test_one_that_was_is_not(stage: Stage) -> None:
    rules.demand_paused(State(stage))


def test_a_version_is_agreed_to_and_not_declared() -> None:
    assert rules.demand_proved(State(Stage.OPEN, proved="step-1"), "step-1") == "step-1"
    for proved in (None, "step-2"):
        with pytest.raises(SidecarError, match="step-1"):
            rules.demand_proved(State(Stage.OPEN, proved=proved), "step-1")


LAYOUTS = ["/weights/{version}", "/w/runs/step_{version}/weight", "/{version}-of-7/a/b"]


@pytest.mark.parametrize("template", LAYOUTS)
def test_a_directory_is_known_by_its_name(template: str) -> None:
    layout = Layout.of(template)
    folder = layout.folder_of("7.a-b")

    assert layout.version_of(str(folder)) == layout.version_of(f"{folder}/") == "7.a-b"


@pytest.mark.parametrize("template", LAYOUTS)
@pytest.mark.parametrize(
    "path",
    ["", ".", "/", "/weights", "/weights/base", "/weights/a/b", "/weights/../a", "weights/a",
     "/w/runs/a/weight", "/w/runs/step_a", "/w/runs/step_/weight", "/a-of-7/a", "/weights/-a",
     "/weights/a\n", "/w/runs/step_a/../step_a/weight"],
)  # fmt: skip
def test_no_other_directory_is_a_version_s(template: str, path: str) -> None:
    with pytest.raises(SidecarError, match="is not the directory of a version") as caught:
        Layout.of(template).version_of(path)
    assert caught.value.code is Code.PATH_REFUSED
