"""The images of each release of vLLM: another one's stand on the newest one's."""

from pathlib import Path

import pytest

from dev.images import build, names
from dev.node import store
from dev.steps import StepFailed

OTHER = [release for release in names.releases() if release != names.NEWEST]


def test_another_release_s_base_is_the_newest_one_s_with_a_layer_more() -> None:
    bases = [names.vllm_cpu(release) for release in OTHER]

    assert len({base.name for base in bases}) == len(OTHER) >= 3
    assert {base.base for base in bases} == {names.vllm_cpu()}


def test_images_of_other_releases_are_not_replaced_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    images = names.of_all_releases()
    held = {one.name for image in images for one in (image, image.base) if one}
    monkeypatch.setattr(store, "names", lambda: held)
    monkeypatch.setattr(build, "_built", set)
    assert build.forget_steps(images) == []

    stale = f"localhost/vllm-cpu-{OTHER[0]}:stale"
    monkeypatch.setattr(store, "names", lambda: held | {stale})
    assert len(build.forget_steps(images)) == 1


def test_a_run_on_another_release_records_its_images_next_to_the_newest_one_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLFLEET_CACHE", str(tmp_path))
    monkeypatch.delenv("VLLM", raising=False)
    names.record(names.ours(names.NEWEST))
    newest = names.recorded()["worker"]

    monkeypatch.setenv("VLLM", OTHER[0])
    names.record(names.ours(OTHER[0]))

    assert names.recorded()["worker"] == names.worker(OTHER[0]).name
    monkeypatch.delenv("VLLM")
    assert names.recorded()["worker"] == newest == names.worker(names.NEWEST).name


def test_a_release_without_a_lock_file_is_refused_with_those_that_have_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VLLM", "0.1.0")

    with pytest.raises(StepFailed, match=names.NEWEST):
        names.chosen()
