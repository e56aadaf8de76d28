"""What an engine's processes read of their environment."""

from pathlib import Path

import pytest

from rlfleet_contract.settings import SettingsError
from rlfleet_engine.settings import EngineSettings

LIMIT = "RLFLEET_MAX_BODY_BYTES"


def test_a_body_may_hold_some_images_by_default() -> None:
    # Two images of 1920 by 1080 as float32, in base64.
    assert EngineSettings.load({}).max_body_bytes > 2 * 1920 * 1080 * 3 * 4 * 4 // 3


def test_each_variable_counts_and_vllm_s_key_has_vllm_s_name() -> None:
    settings = EngineSettings.load(
        {
            "RLFLEET_GATE_FILE": "/dev/shm/gate",  # noqa: S108 - no file is made
            "RLFLEET_BOOT": "boot-1",
            LIMIT: "1024",
            "VLLM_API_KEY": "key",
            "RLFLEET_API_KEY": "not it",
        }
    )

    assert settings.gate_file == Path("/dev/shm/gate")  # noqa: S108 - no file is made
    assert (settings.boot, settings.max_body_bytes) == ("boot-1", 1024)
    assert settings.api_key == "key"
    assert "key" not in repr(settings).replace("api_key", "")


def test_an_empty_variable_counts_as_none() -> None:
    names = ("RLFLEET_GATE_FILE", "RLFLEET_BOOT", LIMIT, "VLLM_API_KEY")

    assert EngineSettings.load(dict.fromkeys(names, "")) == EngineSettings.load({})


@pytest.mark.parametrize("value", ["0", "-1", "64Mi", "1.5", " "])
def test_an_invalid_limit_is_reported_by_its_name(value: str) -> None:
    with pytest.raises(SettingsError, match=LIMIT):
        EngineSettings.load({LIMIT: value})
