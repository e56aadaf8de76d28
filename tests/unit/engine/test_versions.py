"""A vLLM that nobody tested is refused in words."""

import pytest

from rlfleet_engine import versions
from rlfleet_engine.settings import Settings


@pytest.mark.parametrize("version", ["0.32.0", "0.32.1", "0.32.0+cpu"])
def test_a_tested_vllm_passes(version: str) -> None:
    versions.check(version)


@pytest.mark.parametrize("version", ["0.31.9", "0.33.0", "0.320.0", "1.0", ""])
def test_another_vllm_is_refused_with_what_to_do(version: str) -> None:
    with pytest.raises(RuntimeError, match=r"tested on vLLM 0\.32\.x and this is"):
        versions.check(version)


def test_outside_of_vllm_there_is_nothing_to_check() -> None:
    versions.check_loaded()


def test_the_boot_is_the_same_for_all_processes_of_one_start() -> None:
    assert Settings.load() == Settings.load()
    assert len(Settings.load().boot) == 16
