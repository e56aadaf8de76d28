"""Whose kubectl and helm are used: a user's, if they are new enough, or those that are built."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dev.kubernetes import clients
from dev.steps import StepFailed

Put = Callable[[str, str], Path]
KUBECTL = json.dumps({"clientVersion": {"gitVersion": "v1.31.2"}})


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Put]:
    """Programs on a PATH of their own; Go is not there, and would be missed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    clients.found.cache_clear()

    def one(name: str, said: str) -> Path:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\necho '{said}'\n")
        path.chmod(0o755)
        return path

    yield one
    clients.found.cache_clear()


def test_those_on_path_are_taken_and_nothing_is_built(put: Put, tmp_path: Path) -> None:
    put("kubectl", KUBECTL)
    put("helm", "v3.14.0+g3fc9f4b")

    assert clients.build_steps(("kubectl", "helm"), are_users=True) == []
    assert clients.search_path(are_users=True).startswith(f"{tmp_path}:")


def test_one_that_is_too_old_is_named_with_the_way_out(put: Put) -> None:
    put("kubectl", KUBECTL)
    helm = put("helm", "v3.7.2+g663a896")

    with pytest.raises(StepFailed, match=r"helm is 3\.7; helm 3\.8 or newer.*put a newer") as told:
        clients.build_steps(("kubectl", "helm"), are_users=True)

    assert str(helm) in str(told.value)


def test_what_is_missing_is_named_where_nothing_can_build_it(put: Put) -> None:
    put("helm", "v3.14.0+g3fc9f4b")

    with pytest.raises(StepFailed, match=r"^kubectl not found on PATH; install"):
        clients.build_steps(("kubectl", "helm"), are_users=True)


@pytest.mark.parametrize(
    ("client", "said"),
    [
        (clients.HELM, "v3.8.0"),
        (clients.HELM, "v4.0.1+g12500dd"),
        (clients.KUBECTL, KUBECTL.replace("1.31.2", "1.29.0")),
        (clients.KUBECTL, KUBECTL.replace("1.31.2", "1.31.2-gke.100")),
    ],
)
def test_one_that_is_new_enough_is_taken(client: clients.Client, said: str) -> None:
    clients.refuse_older(client, "/usr/bin/it", said)


@pytest.mark.parametrize(
    ("client", "said", "why"),
    [
        (clients.KUBECTL, KUBECTL.replace("1.31.2", "1.28.9"), r"is 1\.28; kubectl 1\.29"),
        (clients.HELM, 'Client: &version.Version{SemVer:"v2.17.0"}', "does not say its version"),
        (clients.KUBECTL, "exec format error", "does not say its version"),
        (clients.KUBECTL, "{}", "does not say its version"),
    ],
)
def test_one_that_is_older_or_silent_is_refused(
    client: clients.Client, said: str, why: str
) -> None:
    with pytest.raises(StepFailed, match=why):
        clients.refuse_older(client, "/usr/bin/it", said)
