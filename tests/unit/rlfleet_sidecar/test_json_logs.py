"""What the sidecar logs can be logged, and names the worker."""

import dataclasses
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.report import Change
from rlfleet_contract.worker.selftest import SelfTest
from rlfleet_sidecar.errors import log_fields
from rlfleet_sidecar.proof.calibration import Calibration

NAMES = {"namespace": "rl", "fleet": "qwen", "worker": "qwen-0"}
TAKEN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
"""A call that passes one of these raises KeyError."""


@pytest.mark.parametrize("model", [SelfTest, Change])
def test_each_field_of_a_record_that_is_logged_whole_can_be_passed(model: type[BaseModel]) -> None:
    assert not TAKEN & set(model.model_fields)


def test_each_field_of_a_measurement_can_be_passed() -> None:
    assert not TAKEN & {field.name for field in dataclasses.fields(Calibration)}


def test_the_message_of_a_problem_is_the_error_of_its_line() -> None:
    problem = Problem.of(Code.CACHE_FULL, "no room", version="v1", operation="r-1")

    fields = log_fields(problem)

    assert not TAKEN & set(fields)
    assert (fields["error"], fields["code"]) == ("no room", "CacheFull")
    assert (fields["version"], fields["operation"]) == ("v1", "r-1")


def test_a_sidecar_names_its_worker_on_each_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot have its address, so that it logs and ends."""
    told = {"MODEL_NAME": "m", "MODEL_PATH": "/m", "STATE_DIR": tmp_path, "HOST": "203.0.113.1"}
    for name, value in (told | NAMES).items():
        monkeypatch.setenv(f"RLFLEET_{name.upper()}", str(value))
    words = [sys.executable, "-P", "-m", "rlfleet_sidecar"]

    ran = subprocess.run(words, check=False, capture_output=True, text=True)

    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert "Started server process" in lines[0]["message"]
    assert all(line.items() >= NAMES.items() for line in lines)
    assert all("color_message" not in line for line in lines)
