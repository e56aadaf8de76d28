"""What each command changes in a fleet's spec, and the patch that does it.

Every command changes fields of spec that docs/reference/fleet.md has; the plugin sends no
command to operator or sidecars. A patch holds only if the spec is still the one that was read:
status changes often and must not make it fail, so that metadata.generation is compared.
"""

from dataclasses import dataclass
from typing import Any

from rlfleet_kubectl.errors import PluginError
from rlfleet_view.fleet import ObservedFleet, RawObject, RolloutRow
from rlfleet_view.verdict import deletion

SpecFields = dict[str, Any]
"""Values by dotted path below spec; None removes the field."""
_NOT_OF_ROLLOUTS = frozenset(
    {"ObjectRefused", "InvalidObject", "InternalError", "StepRewound", "StaleTarget"}
)
"""Reasons of Stalled that another rollout does not mend; Argo CD's actions know them too."""


@dataclass(frozen=True, slots=True)
class SpecChange:
    """Fields of the spec to write, and what the user should know."""

    fields: SpecFields
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Described:
    """What the user says about a version besides its name; None is not said, "" is none."""

    step: int | None = None
    run_id: str | None = None
    digest: str | None = None
    allows_rewind: bool = False


def set_version(fleet: ObservedFleet, version: str, said: Described) -> SpecChange:
    """Return the change to a version."""
    notes = []
    if fleet.spec_at("weights.follow") == "Latest" and not fleet.spec.get("weightVersion"):
        notes.append(
            f"the fleet no longer follows the store; to follow again:"
            f" kubectl rlf set-version {fleet.name} --unset"
        )
    elif fleet.status.get("trainerTarget"):
        notes.append("the version that a trainer requested no longer counts")
    return SpecChange({"weightVersion": version, **_described(fleet, said)}, tuple(notes))


def _described(fleet: ObservedFleet, said: Described) -> SpecFields:
    """Return the fields that describe a version; those of the version before must not stay."""
    for field, given, flag in (("digest", said.digest, "--digest"), ("step", said.step, "--step")):
        held = fleet.spec_at(f"weights.{field}")
        if held is not None and given is None:
            raise PluginError(
                f"spec.weights.{field} is {held}, of another version;"
                f" add {flag} of the new one, or {flag} none"
            )
    fields: SpecFields = {}
    if said.step is not None:
        fields["weights.step"] = said.step if said.step >= 0 else None
    if said.digest is not None:
        fields["weights.digest"] = said.digest or None
    if said.run_id is not None:
        fields["weights.runId"] = said.run_id or None
    if said.allows_rewind:
        fields["rollout.allowRewind"] = True
    return fields


def unset_version(fleet: ObservedFleet) -> SpecChange:
    """Return the change that leaves the version to the trainer or the store."""
    if not fleet.spec.get("weightVersion"):
        raise PluginError(f"{fleet.name} has no spec.weightVersion; nothing to unset")
    follows = fleet.spec_at("weights.follow") == "Latest"
    after = "follows the newest version of the store" if follows else "is left to a trainer"
    gone = {f"weights.{one}": None for one in ("digest", "step") if _has(fleet, one)}
    return SpecChange({"weightVersion": None, **gone}, (f"the target {after}",))


def _has(fleet: ObservedFleet, field: str) -> bool:
    return fleet.spec_at(f"weights.{field}") is not None


def pause(fleet: ObservedFleet, *, is_paused: bool) -> SpecChange | None:
    """Return the change of rollout.paused; None if it is so already."""
    notes: tuple[str, ...] = ()
    if not is_paused and fleet.is_true("Paused"):
        # Another pause, through the fleet API, which no field of the spec ends.
        note = "a trainer still pauses the fleet: resume by the trainer, or wait until its end"
        notes = (f"{note} (kubectl rlf status {fleet.name})",)
    if bool(fleet.spec_at("rollout.paused")) == is_paused:
        if notes:
            raise PluginError(f"spec.rollout.paused is false already; {notes[0]}")
        return None
    return SpecChange({"rollout.paused": is_paused}, notes)


def retry(fleet: ObservedFleet, restart_id: str) -> SpecChange:
    """Return the change that starts another rollout of the same version."""
    if not fleet.target:
        raise PluginError(f"{fleet.name} has no target; set one: kubectl rlf set-version")
    if fleet.spec_at("rollout.restartId") == restart_id:
        raise PluginError(f"spec.rollout.restartId is {restart_id} already; use another --id")
    stalled = fleet.condition("Stalled")
    if stalled is not None and stalled.is_true and stalled.reason in _NOT_OF_ROLLOUTS:
        raise PluginError(
            f"another rollout does not mend {stalled.reason}: {stalled.message};"
            f" see kubectl rlf explain {stalled.reason}"
        )
    return SpecChange({"rollout.restartId": restart_id})


def abort(fleet: ObservedFleet, said: Described) -> SpecChange:
    """Return the change that takes the rollout under way back to the version before it."""
    rollout = fleet.rollout
    if rollout is None or not rollout.is_under_way:
        phase = f"rollout {rollout.id} is {rollout.phase}" if rollout else "there was no rollout"
        raise PluginError(f"no rollout to abort: {phase}; to go back: kubectl rlf rollback")
    if rollout.reason == "Rollback":
        raise PluginError(
            f"rollout {rollout.id} goes back to {rollout.to} already, because"
            f" {fleet.spec.get('weightVersion') or rollout.before} failed; follow it:"
            f" kubectl rlf status {fleet.name} --watch"
        )
    if not rollout.before:
        raise PluginError(
            f"rollout {rollout.id} has no version before it;"
            f" set one (kubectl rlf set-version), or pause it (kubectl rlf pause {fleet.name})"
        )
    return _back(fleet, rollout.before, said)


def rollback(fleet: ObservedFleet, rollout_id: int | None, said: Described) -> SpecChange:
    """Return the change to a version that a rollout of the history completed.

    Without an id it is the newest one other than the target.
    """
    done = [one for one in fleet.rollouts if one.phase == "Completed"]
    if rollout_id is not None:
        found = next((one for one in done if one.id == rollout_id), None)
        if found is None:
            raise PluginError(
                f"rollout {rollout_id} is not among the completed ones"
                f" ({_ids(done)}); choose one: kubectl rlf history {fleet.name}"
            )
    else:
        found = next((one for one in done if one.to != fleet.target), None)
        if found is None:
            raise PluginError(
                f"no completed rollout of another version than {fleet.target or 'none'} is"
                f" recorded; name one: kubectl rlf set-version {fleet.name} VERSION"
            )
    return _back(fleet, found.to, said)


def _ids(rollouts: list[RolloutRow]) -> str:
    return ", ".join(str(one.id) for one in rollouts) or "none"


def _back(fleet: ObservedFleet, version: str, said: Described) -> SpecChange:
    """Return the change to an earlier version, with its step as the history has it."""
    recorded = {raw.get("to"): raw.get("step") for raw in _records(fleet)}
    step = said.step
    if step is None and _has(fleet, "step"):
        step = recorded.get(version)
    same = Described(step, said.run_id, said.digest, said.allows_rewind)
    return set_version(fleet, version, same)


def _records(fleet: ObservedFleet) -> list[RawObject]:
    """Return the raw records, the oldest first, so that the newest of a version counts."""
    newest = fleet.status.get("rollout")
    every = [*([newest] if newest else []), *(fleet.status.get("history") or ())]
    return every[::-1]


def promote(fleet: ObservedFleet) -> SpecChange:
    """Return the change that lets a rollout continue after its canaries."""
    strategy = fleet.spec_at("rollout.strategy") or "Rolling"
    how = fleet.spec_at("rollout.canary.promote") or "Auto"
    if strategy != "Canary" or how != "Manual":
        raise PluginError(
            "promote needs rollout.strategy Canary and rollout.canary.promote Manual,"
            f" got {strategy} and {how}; such a rollout continues by itself"
        )
    rollout = fleet.rollout
    if rollout is None or not rollout.is_under_way:
        raise PluginError(f"no rollout to promote; see kubectl rlf status {fleet.name}")
    if fleet.spec_at("rollout.canary.promotedVersion") == rollout.to:
        raise PluginError(f"{rollout.to} is promoted already; see kubectl rlf status {fleet.name}")
    early = () if rollout.phase == "CanaryHold" else ("the canaries do not serve it yet",)
    return SpecChange({"rollout.canary.promotedVersion": rollout.to}, early)


def operations(fleet: ObservedFleet, change: SpecChange) -> list[RawObject]:
    """Return the JSON patch: first that the spec is still the one that was read.

    Raises PluginError for a fleet that is being deleted: it would have no effect.
    """
    if fleet.deleted_at:
        raise PluginError(f"{fleet.name} was not changed: {deletion(fleet)}")
    held = {"op": "test", "path": "/metadata/generation", "value": fleet.generation}
    made: list[RawObject] = [held]
    parents: set[str] = set()
    for path, value in change.fields.items():
        made += _parents(fleet, path, parents)
        at = "/spec/" + path.replace(".", "/")
        if value is not None:
            made.append({"op": "add", "path": at, "value": value})
        elif fleet.spec_at(path) is not None:
            made.append({"op": "remove", "path": at})
    return made


def _parents(fleet: ObservedFleet, path: str, made: set[str]) -> list[RawObject]:
    """Return the operations that make the objects which the path leads through."""
    parts = path.split(".")[:-1]
    above = [".".join(parts[: n + 1]) for n in range(len(parts))]
    missing = [one for one in above if fleet.spec_at(one) is None and one not in made]
    made.update(missing)
    return [{"op": "add", "path": f"/spec/{one.replace('.', '/')}", "value": {}} for one in missing]


def is_made(fleet: ObservedFleet, change: SpecChange) -> bool:
    """Return whether the spec has all fields of a change already."""
    return all(fleet.spec_at(path) == value for path, value in change.fields.items())


def lines(fleet: ObservedFleet, change: SpecChange) -> list[str]:
    """Return what was patched, a line per field."""
    return [
        f"spec.{path}: {_shown(fleet.spec_at(path))} -> {_shown(value)}"
        for path, value in change.fields.items()
    ]


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value in {None, ""} else str(value)
