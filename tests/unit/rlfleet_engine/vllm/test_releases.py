"""Which releases of vLLM count as tested."""

import pytest

from rlfleet_engine.settings import EngineSettings
from rlfleet_engine.vllm import releases


@pytest.mark.parametrize("release", ["0.29.0", "0.30.0", "0.31.0", "0.32.1", "0.33.0+cpu"])
def test_a_release_of_a_tested_minor_is_tested(release: str) -> None:
    assert releases.is_tested(release)


@pytest.mark.parametrize("release", ["0.28.1", "0.34.0", "0.330.0", "1.0", "", "0.3"])
def test_another_release_is_not(release: str) -> None:
    assert not releases.is_tested(release)


def test_the_boot_is_the_same_for_all_processes_of_one_start() -> None:
    assert EngineSettings.load({}) == EngineSettings.load({})
    assert len(EngineSettings.load({}).boot) == 16
