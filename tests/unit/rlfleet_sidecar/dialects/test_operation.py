"""A trainer's update that failed is recorded, whatever failed."""

from pathlib import Path

import pytest

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.dialects.operation import TrainerChange
from rlfleet_sidecar.state.journal import Journal
from rlfleet_sidecar.vllm_client import EngineClient


def test_an_internal_error_is_recorded_without_its_words(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    change = TrainerChange(journal, EngineClient("http://127.0.0.1:1"))

    with pytest.raises(ValueError, match="s3cr3t"), change.recording():
        raise ValueError("s3cr3t")

    failure = Journal(tmp_path).record.trainer_failure
    assert failure is not None
    assert failure.code is Code.INTERNAL
    assert "s3cr3t" not in failure.message
