"""The extension's lines are JSON inside vLLM, whatever vLLM does with its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ENGINE = Path(__file__).parents[3] / "sidecar" / "rlfleet_engine"
NAMES = {"RLFLEET_NAMESPACE": "rl", "RLFLEET_FLEET": "qwen", "RLFLEET_WORKER": "qwen-0"}
IN_VLLM = """
import logging, sys
logging.getLogger("vllm").addHandler(own := logging.StreamHandler())
import rlfleet_engine.middleware
write = sys.stderr.write
sys.stderr.write = lambda text: write("(APIServer pid=1) " + text)
logging.getLogger("vllm").warning("vLLM's own")
logging.getLogger("rlfleet_engine.gate.lone_gate").info("Sidecar is silent")
assert logging.getLogger("vllm").handlers == [own] and not logging.getLogger().handlers
"""


def lines(script: str) -> list[str]:
    words = [sys.executable, "-P", "-c", script]
    ran = subprocess.run(words, check=True, capture_output=True, text=True)
    return ran.stderr.splitlines()


def test_importing_the_middleware_sets_up_lines_that_name_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """vLLM up to 0.31 makes sys.stderr name the process: that must not come into a line."""
    for name, value in NAMES.items():
        monkeypatch.setenv(name, value)

    foreign, own = lines(IN_VLLM)

    assert foreign == "(APIServer pid=1) vLLM's own"
    assert list(json.loads(own)) == [
        "time",
        "level",
        "logger",
        "message",
        "namespace",
        "fleet",
        "worker",
    ]
    assert json.loads(own)["worker"] == "qwen-0"


def test_a_logger_that_a_user_has_configured_is_left_alone() -> None:
    script = """
import logging
logging.getLogger("rlfleet_engine").addHandler(logging.StreamHandler())
import rlfleet_engine.middleware
logging.getLogger("rlfleet_engine.gate.lone_gate").warning("Sidecar is silent")
"""

    assert lines(script) == ["Sidecar is silent"]


def test_each_module_that_logs_takes_its_logger_from_one_place() -> None:
    """The worker extension needs torch to be imported; its modules log by the same loggers."""
    # The second watches vLLM's own loggers, and logs nothing.
    exempt = {"json_logs.py", "fatal_error.py"}
    others = [path for path in ENGINE.rglob("*.py") if path.name not in exempt]

    assert not [path.name for path in others if "getLogger" in path.read_text()]
    assert "json_logs.logger(" in (ENGINE / "vllm" / "reload" / "consumed.py").read_text()
