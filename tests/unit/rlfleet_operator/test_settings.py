"""The operator's settings."""

import pytest

from rlfleet_contract.settings import SettingsError
from rlfleet_operator.settings import OperatorSettings

IMAGE = {"RLFLEET_WORKER_IMAGE": "worker:1"}
EVERYTHING = IMAGE | {
    "RLFLEET_NAMESPACES": "rl, rl-test,,",
    "RLFLEET_ADMIN_PORT": "9090",
    "RLFLEET_METRICS_PORT": "0",
    "RLFLEET_FLEETS_PORT": "8082",
    "RLFLEET_POLL_SECONDS": "2.5",
    "RLFLEET_SIDECAR_CONCURRENCY": "16",
    "RLFLEET_WATCH_SILENCE_SECONDS": "2",
    "RLFLEET_LOG_LEVEL": "debug",
    "RLFLEET_LEASE_NAME": "rlfleet",
    "RLFLEET_LEASE_NAMESPACE": "rlfleet-system",
}


def test_one_variable_suffices() -> None:
    assert OperatorSettings.load(IMAGE) == OperatorSettings(worker_image="worker:1")


def test_every_variable_counts() -> None:
    assert OperatorSettings.load(EVERYTHING) == OperatorSettings(
        worker_image="worker:1",
        namespaces=("rl", "rl-test"),
        admin_port=9090,
        metrics_port=0,
        fleets_port=8082,
        poll_seconds=2.5,
        sidecar_concurrency=16,
        watch_silence_seconds=2.0,
        log_level="DEBUG",
        lease_name="rlfleet",
        lease_namespace="rlfleet-system",
    )


def test_an_empty_variable_counts_as_none() -> None:
    """The chart sets each of them, empty or not."""
    empty = dict.fromkeys(EVERYTHING, "") | IMAGE

    assert OperatorSettings.load(empty) == OperatorSettings(worker_image="worker:1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RLFLEET_WORKER_IMAGE", ""),
        ("RLFLEET_ADMIN_PORT", "0"),
        ("RLFLEET_ADMIN_PORT", "http"),
        ("RLFLEET_METRICS_PORT", "-1"),
        ("RLFLEET_POLL_SECONDS", "0"),
        ("RLFLEET_POLL_SECONDS", "ten"),
        ("RLFLEET_SIDECAR_CONCURRENCY", "0"),
        ("RLFLEET_LOG_LEVEL", "LOUD"),
        ("RLFLEET_LEASE_NAME", "outside-a-pod"),
    ],
)
def test_a_wrong_value_is_reported_with_its_variable(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        OperatorSettings.load(IMAGE | {name: value})


def test_an_error_names_every_wrong_variable_with_its_value() -> None:
    wrong = {"RLFLEET_ADMIN_PORT": "http", "RLFLEET_POLL_SECONDS": "0"}

    with pytest.raises(SettingsError) as caught:
        OperatorSettings.load(wrong)

    assert "RLFLEET_WORKER_IMAGE is not set: Image of workers" in str(caught.value)
    assert "RLFLEET_ADMIN_PORT: Input should be a valid integer" in str(caught.value)
    assert "(got 'http')" in str(caught.value)
    assert "RLFLEET_POLL_SECONDS: " in str(caught.value)
