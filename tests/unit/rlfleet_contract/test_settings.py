"""Variables in --help, and errors for wrong ones."""

import pytest

from rlfleet_contract.settings import Settings, WorkerIdentity
from rlfleet_engine.settings import EngineSettings
from rlfleet_operator.settings import OperatorSettings
from rlfleet_sidecar.settings import SidecarSettings

ALL = (OperatorSettings, SidecarSettings, EngineSettings)


@pytest.mark.parametrize("settings", ALL)
def test_each_setting_has_a_description(settings: type[Settings]) -> None:
    fields = settings.model_fields.items()

    assert [name for name, field in fields if not field.description] == []


@pytest.mark.parametrize("settings", ALL)
def test_help_names_each_variable_once(settings: type[Settings]) -> None:
    heads = [line.split()[0] for line in settings.variables().splitlines() if line[2] != " "]
    foreign = settings.FOREIGN

    assert heads == [foreign.get(name, f"RLFLEET_{name.upper()}") for name in settings.model_fields]


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (OperatorSettings, "RLFLEET_WORKER_IMAGE (string, required)"),
        (OperatorSettings, "RLFLEET_NAMESPACES (list, default: none)"),
        (OperatorSettings, "RLFLEET_LOG_LEVEL (DEBUG or INFO or WARNING or ERROR, default: INFO)"),
        (SidecarSettings, "RLFLEET_MARKERS (list, default: STABLE,.finished)"),
        (SidecarSettings, "RLFLEET_CACHE_DIR (string, default: none)"),
        (SidecarSettings, "RLFLEET_REQUIRE_TESTED (boolean, default: False)"),
        (SidecarSettings, "RLFLEET_SELF_TEST (JSON, default: none)"),
    ],
)
def test_help_names_type_and_default(settings: type[Settings], line: str) -> None:
    assert f"  {line}\n" in settings.variables()


def test_a_worker_is_named_as_far_as_it_is_known() -> None:
    known = {"RLFLEET_FLEET": "qwen", "RLFLEET_WORKER": ""}

    assert WorkerIdentity.load(known).identity() == {"fleet": "qwen"}
