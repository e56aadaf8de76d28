"""The steps of a rotation of a fleet's token."""

import base64
from typing import Any

import pytest

from rlfleet_kubectl.core import token_rotation as rotation
from rlfleet_kubectl.core.token_rotation import RotationStep
from rlfleet_kubectl.errors import PluginError
from rlfleet_operator.core.manifests import owned_objects
from rlfleet_operator.core.manifests.owned_objects import AdminToken
from tests import fleets


def secret(**data: str) -> dict[str, Any]:
    made = owned_objects.secret(fleets.fleet(), "old")
    del made["stringData"]
    held = {"token": "old"} | data
    return made | {"data": {k: base64.b64encode(v.encode()).decode() for k, v in held.items()}}


def test_each_step_has_the_tokens_that_the_next_one_needs() -> None:
    begun = secret()
    staged = rotation.staged(begun, "new")
    switched = rotation.switched(staged)
    finished = rotation.finished(switched)

    assert [owned_objects.token_in(one) for one in (begun, staged, switched, finished)] == [
        AdminToken("old"),
        AdminToken("old", ("new",), "1"),
        AdminToken("new", ("old",), "2"),
        AdminToken("new", (), "3"),
    ]
    assert [rotation.step_of(one) for one in (begun, staged, switched, finished)] == [
        RotationStep.AT_REST,
        RotationStep.STAGED,
        RotationStep.SWITCHED,
        RotationStep.AT_REST,
    ]


@pytest.mark.parametrize(("before", "after"), [("9", "10"), ("", "1"), ("mine", "1")])
def test_a_revision_is_never_that_of_the_step_before(before: str, after: str) -> None:
    found = rotation.staged(secret(revision=before, note="kept"), "new")

    assert rotation.revision_of(found) == after
    assert found["data"]["note"] == secret(note="kept")["data"]["note"]
    assert found["metadata"] == secret()["metadata"]


@pytest.mark.parametrize(
    "found", [secret(token=""), secret() | {"metadata": {"name": "qwen-admin"}}]
)
def test_a_secret_of_something_else_is_not_changed(found: dict[str, Any]) -> None:
    rotation.demand_secret_of(secret(), "qwen")
    with pytest.raises(PluginError, match="Secret qwen-admin holds no token of fleet qwen"):
        rotation.demand_secret_of(found, "qwen")
