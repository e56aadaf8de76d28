"""What the page may change, and its changes: through kubectl, as the user.

The page shows what the API server accepted in a dry run, with the generation of the spec that it
was about. The change itself holds only for that generation.
"""

import subprocess
from datetime import UTC, datetime
from typing import NamedTuple

from rlfleet_kubectl.core import changes, page_actions
from rlfleet_kubectl.core.names import FLEETS
from rlfleet_kubectl.errors import PluginError
from rlfleet_kubectl.kubectl import Kubectl
from rlfleet_view.fleet import ObservedFleet, RawObject


class ChangeRequest(NamedTuple):
    """What the page sends."""

    namespace: str
    name: str
    action: str
    fields: dict[str, str]
    is_dry: bool
    generation: int | None

    @classmethod
    def of(cls, raw: RawObject) -> "ChangeRequest":
        """Parse it; raises PluginError that names what is wrong."""
        try:
            namespace, _, name = str(raw["key"]).partition("/")
            fields = {str(key): str(value) for key, value in dict(raw["fields"]).items()}
            generation = None if raw["dryRun"] else int(raw["generation"])
            asked = cls(
                namespace, name, str(raw["action"]), fields, bool(raw["dryRun"]), generation
            )
        except (KeyError, TypeError, ValueError) as error:
            raise PluginError(f"change not understood ({error!r}); load the page again") from None
        if not (_is_name(namespace) and _is_name(name)):
            raise PluginError(f"{raw['key']!r} names no fleet; load the page again")
        return asked


def _is_name(text: str) -> bool:
    """Return whether Kubernetes could have such a name: it begins no flag of kubectl."""
    return text.replace("-", "a").replace(".", "a").isalnum() and text[0].isalnum()


def in_namespace(kubectl: Kubectl, namespace: str) -> Kubectl:
    """Return kubectl for another namespace: the last of two flags counts."""
    return Kubectl((*kubectl.flags, f"--namespace={namespace}"))


def may_patch(kubectl: Kubectl, namespace: str, name: str) -> RawObject:
    """Return whether the user may patch a fleet, and what to do if not."""
    own = in_namespace(kubectl, namespace)
    words = own.words("auth", "can-i", "patch", f"{FLEETS}/{name}")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.stdout.strip() == "yes":
        return {"patch": True, "why": ""}
    need = f"read-only: you may not patch {name} in {namespace}"
    return {"patch": False, "why": f"{need} (kubectl auth can-i patch {FLEETS}/{name})"}


def carried_out(kubectl: Kubectl, asked: ChangeRequest) -> RawObject:
    """Patch the fleet, or have the API server check it; raises PluginError if it is rejected."""
    own = in_namespace(kubectl, asked.namespace)
    fleet = own.fleet(asked.name)
    if asked.generation is not None and fleet.generation != asked.generation:
        raise _overtaken(asked.generation, fleet)
    change = page_actions.change(fleet, asked.action, asked.fields, now())
    if change is None:
        raise PluginError("the spec is so already; nothing to change")
    try:
        own.patch(asked.name, changes.operations(fleet, change), is_dry=asked.is_dry)
    except PluginError:
        present = own.fleet(asked.name)
        if present.generation != fleet.generation:
            raise _overtaken(fleet.generation, present) from None
        raise
    return {
        "generation": fleet.generation,
        "lines": changes.lines(fleet, change),
        "notes": list(change.notes),
    }


def _overtaken(generation: int, present: ObservedFleet) -> PluginError:
    return PluginError(
        f"not changed: another client changed the spec (generation {generation}, now"
        f" {present.generation}); check again"
    )


def now() -> str:
    """Return the time, as retry writes it."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
