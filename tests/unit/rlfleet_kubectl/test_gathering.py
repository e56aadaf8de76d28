"""Where commands look without a kubeconfig, and what they read of what a command prints."""

import sys
from pathlib import Path

import pytest

from rlfleet_kubectl import kubectl
from rlfleet_kubectl.commands.gathering import own_namespace, scene
from tests.unit.rlfleet_kubectl.test_kubectl import install

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """The folder of a pod's ServiceAccount."""
    (tmp_path / "token").write_text("x")
    (tmp_path / "namespace").write_text("rl\n")
    return tmp_path


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (POD, "rl"),
        (POD | {"POD_NAMESPACE": "other"}, "other"),
        ({"POD_NAMESPACE": "other"}, "default"),
        ({}, "default"),
    ],
)
def test_in_a_pod_its_own_namespace_is_meant(
    environment: dict[str, str], expected: str, account: Path
) -> None:
    assert own_namespace(environment, account) == expected


def test_without_a_service_account_it_is_no_pod(tmp_path: Path) -> None:
    assert own_namespace(POD, tmp_path) == "default"


def test_bytes_that_are_no_utf_8_do_not_end_a_command() -> None:
    words = [sys.executable, "-c", r"import sys; sys.stdout.buffer.write(b'a\xe2\x82\n')"]

    assert kubectl.ran(words).stdout == "a�\n"


@pytest.mark.parametrize(("word", "unread"), [("NotFound", set()), ("Forbidden", {"namespaces"})])
def test_a_namespace_that_is_not_there_is_no_matter_of_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, unread: set[str]
) -> None:
    said = f"Error from server ({word}): namespaces"
    install(tmp_path, monkeypatch, f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")

    assert set(scene(kubectl.Kubectl(), "nowhere", ["namespaces"]).unread) == unread
