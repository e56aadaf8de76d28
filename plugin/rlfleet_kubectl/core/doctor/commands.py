"""Commands for the user that mend: an upgrade of the release, an object to apply."""

import json
import shlex
from collections.abc import Sequence

from rlfleet_kubectl.core.doctor.scene import kubectl_in, labels_of
from rlfleet_view.fleet import RawObject

UNKNOWN = "RELEASE"
"""For the user to replace: no object names the release."""
_SUBCHART = "rlfleet.dev/subchart"
"""The chart annotates so what belongs to the release of a chart around it."""


def release_of(raw: RawObject) -> str:
    """Return the Helm release that an object of the operator belongs to.

    Helm annotates what it installs; a pod has only the chart's label. An upgrade of another chart's
    release from this one would remove the rest of it, so that one counts as unknown.
    """
    notes = raw["metadata"].get("annotations") or {}
    if _SUBCHART in notes:
        return UNKNOWN
    known = (
        notes.get("meta.helm.sh/release-name"),
        labels_of(raw).get("app.kubernetes.io/instance"),
    )
    return next((str(one) for one in known if one), UNKNOWN)


def release_in(deployments: Sequence[RawObject]) -> str:
    """Return the release of the only operator; with several the user must choose."""
    found = {release_of(one) for one in deployments}
    return found.pop() if len(found) == 1 else UNKNOWN


def upgrade(release: str, namespace: str, *values: str) -> str:
    """Return the command that upgrades a release from this checkout, and sets values."""
    command = f"helm upgrade {release} charts/rlfleet -n {namespace} --reset-then-reuse-values"
    return " ".join((command, *(f"--set {shlex.quote(one)}" for one in values)))


def applying(raw: RawObject, namespace: str) -> str:
    """Return the command that creates an object."""
    text = json.dumps(raw, separators=(",", ":"))
    return f"{kubectl_in(namespace)} apply -f - <<< '{text}'"
