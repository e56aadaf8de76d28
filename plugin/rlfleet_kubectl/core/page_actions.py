"""The buttons of the dashboard: which changes fit a fleet's state, and the change of each.

They are those of the commands (changes.py). A button that does not fit is not shown.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from rlfleet_kubectl.core import changes
from rlfleet_kubectl.core.changes import Described, SpecChange
from rlfleet_kubectl.errors import PluginError
from rlfleet_view.fleet import ObservedFleet, RawObject

_NO_STEP = -1
TypedFields = Mapping[str, str]
"""What the user typed, by the field's name."""
_Make = Callable[[ObservedFleet, TypedFields, str], SpecChange | None]
_ANY = {"version": "any", "step": "none", "digest": "none"}
"""TypedFields that any version may have: whether a button fits does not depend on them."""


@dataclass(frozen=True, slots=True)
class PageField:
    """A text field of a button's dialog."""

    name: str
    label: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class PageAction:
    """A button."""

    name: str
    label: str
    about: str
    kind: str = ""
    fields: tuple[PageField, ...] = ()


_DESCRIBES = (
    PageField("step", "Step (weights.step), or none"),
    PageField("digest", "Digest (weights.digest), or none"),
    PageField("runId", "Run (weights.runId), or none"),
)


def actions(fleet: ObservedFleet, now: str) -> list[RawObject]:
    """Return the buttons that fit a fleet now, as the page draws them; none once it is deleted."""
    if fleet.deleted_at:
        return []
    return [
        {**asdict(one), "fields": [asdict(field) for field in one.fields if _asks(fleet, field)]}
        for one in _ALL
        if _fits(fleet, one, now)
    ]


def trials(fleet: ObservedFleet, now: str) -> dict[str, SpecChange]:
    """Return changes of what buttons write, to try without effect, by the button's name.

    RBAC has no rights on fields, but a policy may, as the chart's of trainers. A
    right to patch a fleet is taken for one to its version, which the other buttons write.
    """
    paused = SpecChange({"rollout.paused": not fleet.spec_at("rollout.paused")})
    return {
        "pause": paused,
        "resume": paused,
        "retry": SpecChange({"rollout.restartId": now}),
        "promote": SpecChange({"rollout.canary.promotedVersion": "any"}),
    }


def _asks(fleet: ObservedFleet, field: PageField) -> bool:
    """Return whether a field is asked for: what describes a version only where the spec has it."""
    return field.name == "version" or bool(fleet.spec_at(f"weights.{field.name}") not in {None, ""})


def _fits(fleet: ObservedFleet, action: PageAction, now: str) -> bool:
    if action.name == "promote" and (fleet.rollout is None or fleet.rollout.phase != "CanaryHold"):
        return False
    try:
        return change(fleet, action.name, _ANY, now) is not None
    except PluginError:
        return False


def change(fleet: ObservedFleet, name: str, fields: TypedFields, now: str) -> SpecChange | None:
    """Return the change of a button; None if the spec is so already.

    Raises PluginError if it does not fit the fleet, or a field is wrong.
    """
    make = _MAKE.get(name)
    if make is None:
        raise PluginError(f"no action {name!r}; use one of {', '.join(_MAKE)}")
    made = make(fleet, fields, now)
    return None if made is None or changes.is_made(fleet, made) else made


def _set_version(fleet: ObservedFleet, fields: TypedFields, _: str) -> SpecChange:
    version = fields.get("version", "")
    if not version:
        raise PluginError("no version named; type one, such as step-120")
    return changes.set_version(fleet, version, _described(fields))


def _described(fields: TypedFields) -> Described:
    return Described(
        step=_step(fields.get("step", "")),
        run_id=_said(fields.get("runId", "")),
        digest=_said(fields.get("digest", "")),
    )


def _said(typed: str) -> str | None:
    return "" if typed == "none" else typed or None


def _step(typed: str) -> int | None:
    if typed == "none":
        return _NO_STEP
    if typed and not (typed.isascii() and typed.isdigit()):
        raise PluginError(f"{typed!r} is no step; type a number from 0, or none")
    return int(typed) if typed else None


_ALL = (
    PageAction(
        "set-version",
        "Set version",
        "Sets spec.weightVersion: the version that every worker must serve.",
        "",
        (PageField("version", "Version"), *_DESCRIBES),
    ),
    PageAction("promote", "Promote", "All workers load what the canaries serve.", "primary"),
    PageAction("pause", "Pause", "Begins no further batch. A batch under way completes."),
    PageAction("resume", "Resume", "Continues the rollout that a pause stopped."),
    PageAction("retry", "Retry", "Starts another rollout of the same version."),
    PageAction(
        "rollback",
        "Roll back",
        "Sets the version that was completed before the target.",
        "danger",
        _DESCRIBES,
    ),
    PageAction("abort", "Abort", "Sets the version that was served before.", "danger", _DESCRIBES),
)
_MAKE: dict[str, _Make] = {
    "set-version": _set_version,
    "promote": lambda fleet, *_: changes.promote(fleet),
    "pause": lambda fleet, *_: changes.pause(fleet, is_paused=True),
    "resume": lambda fleet, *_: changes.pause(fleet, is_paused=False),
    "retry": lambda fleet, _, now: changes.retry(fleet, now),
    "rollback": lambda fleet, fields, _: changes.rollback(fleet, None, _described(fields)),
    "abort": lambda fleet, fields, _: changes.abort(fleet, _described(fields)),
}
