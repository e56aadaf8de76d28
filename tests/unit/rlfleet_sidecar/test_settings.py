"""The sidecar's variables, and errors for wrong ones."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from rlfleet_contract.settings import SettingsError
from rlfleet_sidecar.checkpoints.safe_paths import Layout
from rlfleet_sidecar.settings import SidecarSettings

NEEDED = {"RLFLEET_MODEL_NAME": "qwen", "RLFLEET_MODEL_PATH": "/models/qwen"}


def test_two_variables_suffice() -> None:
    settings = SidecarSettings.load(NEEDED | {"HOME": "/", "RLFLEET_GATE_FILE": "/not/ours"})

    assert settings.engine_url == "http://127.0.0.1:8000"
    assert (settings.host, settings.port) == ("0.0.0.0", 8090)
    assert settings.weights_path == "/weights/{version}"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("RLFLEET_MODEL_NAME", ""),
        ("RLFLEET_MODEL_PATH", "models/qwen"),
        ("RLFLEET_MODEL_PATH", "/models/../etc"),
        ("RLFLEET_WEIGHTS_PATH", "/weights"),
        ("RLFLEET_WEIGHTS_PATH", "/weights/{version}/{version}"),
        ("RLFLEET_WEIGHTS_PATH", "/weights/{step}/{version}"),
        ("RLFLEET_WEIGHTS_PATH", "weights/{version}"),
        ("RLFLEET_WEIGHTS_SOURCE", "s3://bucket/run"),
        ("RLFLEET_WEIGHTS_SOURCE", "s3://user:key@bucket/{version}"),
        ("RLFLEET_WEIGHTS_SOURCE", "https://host/{version}?token=x"),
        ("RLFLEET_WEIGHTS_SOURCE", "file:///weights/{version}"),
        ("RLFLEET_CACHE_DIR", "cache"),
        ("RLFLEET_PORT", "many"),
        ("RLFLEET_POLL_S", "0"),
        ("RLFLEET_PROBE_TOKENS", "0"),
        ("RLFLEET_MARKERS", "STABLE,../x"),
        ("RLFLEET_TRAINER_TTL_S", "3601"),
        ("RLFLEET_TRAINER_TTL_S", "600"),
    ],
)
def test_a_wrong_value_is_rejected_with_the_variable(variable: str, value: str) -> None:
    with pytest.raises(SettingsError, match=variable):
        SidecarSettings.load(NEEDED | {variable: value})


def test_a_missing_variable_is_rejected() -> None:
    with pytest.raises(SettingsError, match="RLFLEET_MODEL_PATH"):
        SidecarSettings.load({"RLFLEET_MODEL_NAME": "qwen"})


def test_a_store_needs_a_cache() -> None:
    store = NEEDED | {"RLFLEET_WEIGHTS_SOURCE": "s3://bucket/{version}"}

    with pytest.raises(SettingsError, match="RLFLEET_CACHE_DIR: must be set with"):
        SidecarSettings.load(store)
    assert SidecarSettings.load(store | {"RLFLEET_CACHE_DIR": "/cache"}).weights_source


@pytest.mark.parametrize(
    "part", ["a%2Fb", "a%2fb", "%2e%2E", "..", ".", "%00", "a%0ab", "%7Bversion%7D", "%7f"]
)
def test_an_encoded_character_that_leads_elsewhere_is_rejected(part: str) -> None:
    store = NEEDED | {
        "RLFLEET_WEIGHTS_SOURCE": f"https://host/{part}/{{version}}",
        "RLFLEET_CACHE_DIR": "/cache",
    }

    with pytest.raises(SettingsError, match=r"RLFLEET_WEIGHTS_SOURCE: .*no part of a name"):
        SidecarSettings.load(store)


@pytest.mark.parametrize("url", ["https://h/my%20run.d/{version}", "s3://b/a%2Fb/{version}"])
def test_a_name_of_its_own_may_be_encoded(url: str) -> None:
    store = NEEDED | {"RLFLEET_WEIGHTS_SOURCE": url, "RLFLEET_CACHE_DIR": "/cache"}

    assert SidecarSettings.load(store).weights_source == url


def test_settings_do_not_change() -> None:
    settings = SidecarSettings.load(NEEDED)
    with pytest.raises(ValidationError):
        settings.port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("template", "root", "folder"),
    [
        ("/weights/{version}", "/weights", "/weights/v1"),
        ("/data/run/step_{version}/weight", "/data/run", "/data/run/step_v1/weight"),
        ("/{version}", "/", "/v1"),
    ],
)
def test_the_root_is_what_stands_before_the_version(template: str, root: str, folder: str) -> None:
    layout = Layout.of(template)

    assert (layout.root, layout.folder_of("v1")) == (Path(root), Path(folder))


@pytest.mark.parametrize(
    ("value", "markers"), [("STABLE", ("STABLE",)), ("a,.b", ("a", ".b")), ("", ())]
)
def test_markers_are_a_list_with_commas(value: str, markers: tuple[str, ...]) -> None:
    assert SidecarSettings.load(NEEDED | {"RLFLEET_MARKERS": value}).markers == markers


def test_a_trainer_s_pause_outlives_the_prepare_within_it() -> None:
    with pytest.raises(SettingsError, match=r"RLFLEET_TRAINER_TTL_S: .*PREPARE_S"):
        SidecarSettings.load(NEEDED | {"RLFLEET_TRAINER_PREPARE_S": "2000"})
