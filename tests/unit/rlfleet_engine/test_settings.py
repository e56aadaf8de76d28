"""What an engine's processes read of their environment."""

from pathlib import Path

import pytest

from rlfleet_engine.settings import EngineSettings

LIMIT = "RLFLEET_MAX_BODY_BYTES"


def test_a_body_may_hold_some_images_if_nobody_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(LIMIT, raising=False)

    # Two images of 1920 by 1080 as float32, in base64.
    assert EngineSettings.load().max_body_bytes > 2 * 1920 * 1080 * 3 * 4 * 4 // 3


def test_the_limit_of_a_body_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RLFLEET_GATE_FILE", str(tmp_path / "gate"))
    monkeypatch.setenv(LIMIT, "1024")

    settings = EngineSettings.load()

    assert (settings.max_body_bytes, settings.gate_file) == (1024, tmp_path / "gate")


@pytest.mark.parametrize("told", ["0", "-1", "64Mi", "1.5", " "])
def test_a_limit_that_is_none_is_told_by_its_name(
    monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    monkeypatch.setenv(LIMIT, told)

    with pytest.raises(ValueError, match=LIMIT):
        EngineSettings.load()
