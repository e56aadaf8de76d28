"""The commands that mend, as a shell takes them."""

import shlex
from typing import Any

import pytest

from rlfleet_kubectl.core.doctor import commands

LABELS = {"app.kubernetes.io/instance": "labelled"}
NOTES = {"meta.helm.sh/release-name": "installed"}


def raw(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", **metadata}}


@pytest.mark.parametrize(
    ("found", "release"),
    [
        (raw(labels=LABELS, annotations=NOTES), "installed"),
        (raw(labels=LABELS), "labelled"),
        (raw(labels=LABELS, annotations={"other": "x"}), "labelled"),
        (raw(), "RELEASE"),
        (raw(labels=LABELS, annotations=NOTES | {"rlfleet.dev/subchart": "true"}), "RELEASE"),
    ],
)
def test_a_release_is_the_one_that_helm_notes_or_that_the_chart_labels(
    found: dict[str, Any], release: str
) -> None:
    assert commands.release_of(found) == release


def test_of_several_releases_the_user_must_choose() -> None:
    one, other = raw(labels=LABELS), raw(annotations=NOTES)

    assert commands.release_in([one, one]) == "labelled"
    assert commands.release_in([one, other]) == commands.release_in([]) == "RELEASE"


@pytest.mark.parametrize("value", ["a.b=SIZE", "namespaces={a,b}", "imagePullSecrets[0].name=S"])
def test_a_shell_leaves_a_value_as_it_is(value: str) -> None:
    words = shlex.split(commands.upgrade("rl", "sys", value))

    assert words[:5] == ["helm", "upgrade", "rl", "charts/rlfleet", "-n"]
    assert words[-2:] == ["--set", value]
