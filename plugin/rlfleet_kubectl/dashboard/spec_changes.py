"""What the page may change, and its changes: through kubectl, as the user.

The page shows what the API server accepted in a dry run, with the generation of the spec that it
was about. The change itself holds only for that generation.
"""

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import NamedTuple

from rlfleet_kubectl.core import changes, page_actions
from rlfleet_kubectl.core.changes import SpecChange
from rlfleet_kubectl.core.names import FLEETS
from rlfleet_kubectl.errors import PluginError
from rlfleet_kubectl.kubectl import Kubectl
from rlfleet_view.fleet import ObservedFleet, RawObject

_DENIED = re.compile(r"\bdenied (?:the )?request:\s*(.+)", re.DOTALL)
"""What the API server writes of a policy (without the article) and of a webhook, with its words."""


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


def rights(kubectl: Kubectl, fleet: ObservedFleet) -> RawObject:
    """Return whether the user may patch a fleet, and which buttons a policy would deny."""
    own = in_namespace(kubectl, fleet.namespace)
    words = own.words("auth", "can-i", "patch", f"{FLEETS}/{fleet.name}")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.stdout.strip() == "yes":
        return {"patch": True, "why": "", "denied": _denied(own, fleet)}
    need = f"read-only: you may not patch {fleet.name} in {fleet.namespace}"
    why = f"{need} (kubectl auth can-i patch {FLEETS}/{fleet.name})"
    return {"patch": False, "why": why, "denied": {}}


def _denied(own: Kubectl, fleet: ObservedFleet) -> dict[str, str]:
    """Return the words of an admission policy or webhook about each button that it denies."""
    tried = page_actions.trials(fleet, now())
    with ThreadPoolExecutor(len(tried)) as pool:
        said = pool.map(lambda change: _denial(own, fleet, change), tried.values())
    return {name: words for name, words in zip(tried, said, strict=True) if words}


def _denial(own: Kubectl, fleet: ObservedFleet, change: SpecChange) -> str:
    """Return why the API server denies a change; empty if it allows it, or has another reason."""
    try:
        own.patch(fleet.name, changes.operations(fleet, change), is_dry=True)
    except PluginError as error:
        found = _DENIED.search(str(error))
        return found[1] if found else ""
    return ""


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
