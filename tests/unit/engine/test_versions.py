"""A vLLM that nobody tested is refused in words."""

import subprocess
import sys

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


@pytest.mark.parametrize(("version", "is_fine"), [("0.32.0", True), ("0.33.0", False)])
def test_vllm_s_server_does_not_start_with_the_extension_under_another_vllm(
    version: str,
    is_fine: bool,  # noqa: FBT001 - a table
) -> None:
    code = (
        "import sys, types\n"
        "sys.modules['vllm'] = vllm = types.ModuleType('vllm')\n"
        f"vllm.__version__ = {version!r}\n"
        "import rlfleet_engine.middleware\n"
    )
    words = (sys.executable, "-c", code)

    done = subprocess.run(
        words, env={"PYTHONPATH": "sidecar"}, check=False, capture_output=True, text=True
    )

    assert (done.returncode == 0) is is_fine, done.stderr
    assert ("use an engine image with a tested vLLM" in done.stderr) is not is_fine


def test_outside_of_vllm_there_is_nothing_to_check() -> None:
    versions.check_loaded()


def test_the_boot_is_the_same_for_all_processes_of_one_start() -> None:
    assert Settings.load() == Settings.load()
    assert len(Settings.load().boot) == 16
