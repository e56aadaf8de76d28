"""Where the demo's checkpoints lie on a user's cluster."""

from typing import Any

import pytest

from dev.demo import storage
from dev.demo.storage import Storage
from dev.steps import StepFailed

NODE: dict[str, Any] = {"spec": {}}
CONTROL_PLANE = {"spec": {"taints": [{"key": "control-plane", "effect": "NoSchedule"}]}}
CORDONED = {"spec": {"unschedulable": True}}


def of_class(name: str, is_default: str = "true") -> dict[str, Any]:
    return {"metadata": {"name": name, "annotations": {storage.DEFAULT: is_default}}}


@pytest.mark.parametrize(
    ("nodes", "classes", "named", "expected"),
    [
        ([NODE], [of_class("standard")], "", ("ReadWriteOnce", "", False)),
        ([NODE], [of_class("a", "false")], "a", ("ReadWriteOnce", "a", False)),
        ([NODE], [], "", ("ReadWriteOnce", "", True)),
        ([NODE], [of_class("a", "false")], "", ("ReadWriteOnce", "", True)),
        ([NODE, CONTROL_PLANE, CORDONED], [], "", ("ReadWriteOnce", "", True)),
        ([NODE, NODE], [of_class("nfs")], "", ("ReadWriteMany", "", False)),
        (
            [NODE, NODE],
            [of_class("ebs"), of_class("nfs", "")],
            "nfs",
            ("ReadWriteMany", "nfs", False),
        ),
        ([NODE], [{"metadata": {"name": "bare"}}], "", ("ReadWriteOnce", "", True)),
    ],
)
def test_one_node_needs_no_volume_for_many(
    nodes: list[dict[str, Any]],
    classes: list[dict[str, Any]],
    named: str,
    expected: tuple[str, str, bool],
) -> None:
    chosen = storage.choose(nodes, classes, named)

    assert (chosen.mode, chosen.class_name, chosen.is_folder) == expected
    assert isinstance(chosen, Storage)
    assert chosen.why


def test_several_nodes_without_a_class_are_refused_with_the_way_out() -> None:
    with pytest.raises(StepFailed, match=r"2 nodes and no default.*has: a\); set STORAGE_CLASS"):
        storage.choose([NODE, NODE], [of_class("a", "false")], "")


def test_a_class_that_is_not_there_is_named() -> None:
    with pytest.raises(StepFailed, match=r"STORAGE_CLASS=b is not .* \(it has: a\)"):
        storage.choose([NODE], [of_class("a")], "b")
