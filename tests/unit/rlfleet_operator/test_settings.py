"""The operator's settings."""

import pytest

from rlfleet_operator.__main__ import _variables
from rlfleet_operator.settings import OperatorSettings, from_environment

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
    assert from_environment(IMAGE) == OperatorSettings(worker_image="worker:1")


def test_every_variable_counts() -> None:
    assert from_environment(EVERYTHING) == OperatorSettings(
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
    del empty["RLFLEET_LOG_LEVEL"]

    assert from_environment(empty) == OperatorSettings(worker_image="worker:1")


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
def test_a_wrong_value_is_told_with_its_variable(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name):
        from_environment(IMAGE | {name: value})


@pytest.mark.parametrize("name", EVERYTHING)
def test_help_names_every_variable(name: str) -> None:
    assert name in _variables()
