"""What a test of a reload shows, and what a version is refused for."""

import pytest

from rlfleet_contract.engine.rank_report import Installed
from rlfleet_contract.engine.safetensors import Tensor
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.proof import Evidence
from rlfleet_contract.worker.selftest import EngineDescription, SelfTest, kind_of
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.proof import selftest
from rlfleet_sidecar.proof.probe import ProbeAnswer

ENGINE = EngineDescription(release="0.32.0", is_tested=True, device="cpu", fingerprint="f")
NOW = 1_800_000_000.0
PASSED = SelfTest(key="k", engine="vLLM", passed=True, distance=0.0, kinds=3)


def tensor(name: str, shape: tuple[int, ...] = (2,)) -> Tensor:
    return Tensor(name=name, dtype="BF16", shape=shape, begin=0, nbytes=4)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (
            "model.layers.11.mlp.experts.7.up_proj.weight",
            "model.layers.N.mlp.experts.N.up_proj.weight",
        ),
        ("h.0.attn.c_attn.weight", "h.N.attn.c_attn.weight"),
        ("model.layers.3", "model.layers.N"),
        ("conv1d.weight", "conv1d.weight"),
    ],
)
def test_a_kind_is_a_name_without_numbers(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_kinds_that_the_probe_cannot_reach_are_left_out() -> None:
    names = ["visual.blocks.0.w", "visual.blocks.1.w", "model.layers.0.w", "model.layers.1.w"]

    assert selftest.kinds_of(names, ["visual.blocks.N.w"]) == ("model.layers.N.w",)


def test_a_test_holds_for_the_engine_and_the_form_of_its_base() -> None:
    key = selftest.key_of(ENGINE, [tensor("a"), tensor("b")], 1)
    other = ENGINE.model_copy(update={"fingerprint": "g"})

    assert selftest.key_of(ENGINE, [tensor("b"), tensor("a")], 1) == key
    assert selftest.key_of(other, [tensor("a"), tensor("b")], 1) != key
    assert selftest.key_of(ENGINE, [tensor("a"), tensor("b", (3,))], 1) != key
    assert selftest.key_of(ENGINE, [tensor("a"), tensor("b")], 2) != key


def test_noise_is_the_largest_difference_of_equal_weights() -> None:
    answers = [ProbeAnswer((1,), (-1.0, -2.0)), ProbeAnswer((1,), (-1.0, -2.5))]

    assert selftest.noise_of(answers) == 0.5


@pytest.mark.parametrize(
    ("distance", "noise", "faithful"),
    [(0.0, 0.0, True), (0.001, 0.0, True), (0.048, 0.0, False), (0.048, 0.02, True)],
)
def test_a_reload_is_faithful_within_the_measured_noise(
    distance: float, noise: float, *, faithful: bool
) -> None:
    assert selftest.is_faithful(distance, noise) is faithful


def test_what_moves_no_answer_is_stale() -> None:
    moves = {"experts": 0.0, "head": 0.3, "norm": 0.00002, "zeros that stay": None}

    assert selftest.unmoved(moves, 0.0) == ("experts",)
    assert selftest.unmoved(moves, 0.01) == ("experts", "norm")


@pytest.mark.parametrize(("others", "shown"), [(0, False), (2, True), (None, True)])
def test_a_change_shows_only_if_values_are_others(others: int | None, *, shown: bool) -> None:
    load = [Installed(tensors=3, nbytes=12, digest="d", changed=others)] * 2

    assert selftest.is_changed(load) is shown


def test_kinds_are_changed_within_the_budget_only() -> None:
    assert selftest.affordable(9, 1.0, 10.0)
    assert not selftest.affordable(10, 1.0, 10.0)


def test_a_test_that_was_cut_off_is_made_again_and_counts_its_attempts() -> None:
    cut = PASSED.model_copy(update={"passed": None, "attempts": 2})

    assert selftest.is_due(None, "k", NOW)
    assert selftest.is_due(cut, "k", NOW)
    assert selftest.is_due(PASSED, "another", NOW)
    assert not selftest.is_due(PASSED, "k", NOW)
    assert selftest.attempts_of(cut, "k") == 3
    assert selftest.attempts_of(cut, "another") == 1


@pytest.mark.parametrize(
    ("attempts", "rest_s"), [(3, 60), (4, 120), (7, 960), (8, 1800), (5000, 1800)]
)
def test_a_test_that_no_engine_survives_is_put_off_for_longer_each_time(
    attempts: int, rest_s: float
) -> None:
    cut = PASSED.model_copy(update={"passed": None, "attempts": attempts, "boot": "b"})

    put_off = selftest.put_off(cut, NOW, 60)

    assert selftest.is_exhausted(cut, "k")
    assert not selftest.is_due(put_off, "k", NOW + rest_s - 1)
    assert selftest.is_due(put_off, "k", NOW + rest_s)
    assert selftest.attempts_of(put_off, "k") == attempts + 1
    # This start of the engine holds what it booted with: no test ran in it.
    assert put_off.boot is None


def test_a_clock_that_is_set_back_puts_no_test_off_for_ever() -> None:
    cut = PASSED.model_copy(update={"passed": None, "attempts": 3})

    assert selftest.is_due(selftest.put_off(cut, NOW, 60), "k", NOW - 86400)


def test_a_test_that_gave_its_verdict_is_not_made_again() -> None:
    failed = PASSED.model_copy(update={"passed": False, "attempts": 9})

    assert not selftest.is_due(failed, "k", NOW)
    assert not selftest.is_exhausted(failed, "k")
    assert not selftest.is_exhausted(None, "k")


def test_an_engine_with_a_postponed_test_rejects_versions_and_names_the_repeat() -> None:
    cut = PASSED.model_copy(update={"passed": None, "attempts": 3})
    put_off = selftest.put_off(cut, NOW, 60)

    with pytest.raises(SidecarError, match=r"exited 3 times .* the sidecar repeats the test"):
        selftest.demand_reloadable(put_off, "step-1", "base")


@pytest.mark.parametrize("code", [None, Code.ENGINE_UNTESTED])
def test_an_engine_that_failed_takes_no_version_but_its_base(code: Code | None) -> None:
    failed = PASSED.model_copy(update={"passed": False, "reason": "experts stay", "code": code})

    selftest.demand_reloadable(failed, "base", "base")
    with pytest.raises(SidecarError, match=r"experts stay; use an engine image") as refused:
        selftest.demand_reloadable(failed, "step-1", "base")
    assert refused.value.code is (code or Code.ENGINE_UNFAITHFUL)


@pytest.mark.parametrize("known", [None, PASSED, PASSED.model_copy(update={"passed": None})])
def test_an_engine_that_did_not_fail_takes_versions(known: SelfTest | None) -> None:
    selftest.demand_reloadable(known, "step-1", "base")


def test_no_proof_claims_more_than_the_test_showed() -> None:
    without_kinds = PASSED.model_copy(update={"kinds": 0})
    failed = PASSED.model_copy(update={"passed": False})

    assert selftest.evidence_of(PASSED) == (Evidence.FAITHFUL, Evidence.SENSITIVE)
    assert selftest.evidence_of(without_kinds) == (Evidence.FAITHFUL,)
    assert selftest.evidence_of(failed) == selftest.evidence_of(None) == ()


@pytest.mark.parametrize(
    ("code", "is_tested", "is_due"),
    [
        (None, True, False),
        (None, False, False),
        (Code.ENGINE_UNTESTED, True, True),
        (Code.ENGINE_UNTESTED, False, False),
        (Code.ENGINE_UNFAITHFUL, True, False),
    ],
)
def test_a_remembered_test_is_read_as_the_running_release_has_it(
    code: Code | None,
    is_tested: bool,  # noqa: FBT001 - of the table
    is_due: bool,  # noqa: FBT001 - the same
) -> None:
    known = PASSED.model_copy(update={"is_tested": False, "passed": code is None, "code": code})

    now = selftest.as_of_release(known, is_tested=is_tested)

    assert selftest.is_due(now, "k", NOW) is is_due
    assert now is None or now.is_tested is is_tested
