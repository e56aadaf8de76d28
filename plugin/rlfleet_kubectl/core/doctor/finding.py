"""A finding: how bad, about what, got and expected, and one command or field that mends it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from rich.text import Text

from rlfleet_view.fleet import RawObject

EACH = "{each}"
"""Stands in a mend for the names of all objects that it is for."""
_FLEET = "fleet "
_SHOWN = 3
"""So many objects with one defect are named; a fleet may have hundreds."""


class Severity(StrEnum):
    """How bad a finding is; declared worst first."""

    ERROR = "error"
    """Something does not work."""
    WARNING = "warning"
    """It works now, or only a part does not."""
    UNKNOWN = "unknown"
    """It could not be checked, mostly because the user may not read it."""


_ORDER = tuple(Severity)
_COLOURS = {
    Severity.ERROR: "bold red",
    Severity.WARNING: "yellow",
    Severity.UNKNOWN: "dim",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    severity: Severity
    check: str
    """Name of the check: scripts may compare it."""
    object: str
    """What it is about: kind, namespace/name."""
    found: str
    """What was found, and what was expected."""
    mend: str
    """One command, or the field to change."""
    others: tuple[str, ...] = ()
    """More objects with the same defect."""
    each: tuple[str, ...] = ()
    """What is written for EACH."""


def error(check: str, about: str, found: str, mend: str, *each: str) -> Finding:
    """Return a finding about what does not work."""
    return Finding(Severity.ERROR, check, about, found, mend, each=each)


def warning(check: str, about: str, found: str, mend: str, *each: str) -> Finding:
    """Return a finding about what may stop to work."""
    return Finding(Severity.WARNING, check, about, found, mend, each=each)


def unknown(check: str, about: str, found: str, mend: str) -> Finding:
    """Return a finding about what could not be checked."""
    return Finding(Severity.UNKNOWN, check, about, found, mend)


def grouped(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings, the worst first; a defect of many objects is one finding."""
    by_defect: dict[tuple[str, ...], Finding] = {}
    for one in findings:
        # What mends one container, fleet or namespace does not mend another.
        key = (one.severity, one.check, one.found, _common(one))
        first = by_defect.get(key)
        if first is None:
            by_defect[key] = one
        elif one.object not in {first.object, *first.others}:
            others, each = (*first.others, one.object), (*first.each, *one.each)
            by_defect[key] = replace(first, others=others, each=each)
    found = (replace(o, mend=o.mend.replace(EACH, " ".join(o.each))) for o in by_defect.values())
    return sorted(found, key=lambda one: _ORDER.index(one.severity))


def _common(one: Finding) -> str:
    """Return the mend as findings of one defect share it.

    The log of one pod stands for all. The command for a fleet changes that fleet alone.
    """
    return one.mend if one.object.startswith(_FLEET) else one.mend.replace(_name(one), EACH)


def _name(one: Finding) -> str:
    """Return the name of a finding's first object, without kind and namespace."""
    return one.object.split()[1].rpartition("/")[2] if " " in one.object else one.object


def errors(findings: Iterable[Finding]) -> int:
    """Return how many findings are errors."""
    return sum(one.severity is Severity.ERROR for one in findings)


def summary(findings: Iterable[Finding]) -> str:
    """Return the counts in one line."""
    listed = list(findings)
    counts = [(sum(one.severity is each for one in listed), each) for each in Severity]
    said = ", ".join(f"{count} {_noun(count, each)}" for count, each in counts if count)
    return said or "nothing wrong was found"


def _noun(count: int, severity: Severity) -> str:
    if severity is Severity.UNKNOWN:
        return "not checked"
    return f"{severity}s" if count > 1 else str(severity)


def rendered(one: Finding) -> list[Text]:
    """Return a finding for a person: what it is about, what was found, what mends it."""
    head = Text(f"{one.severity.upper():<8}", _COLOURS[one.severity])
    head.append(f" {_objects(one)}", "bold")
    head.append(f"  {one.check}", "dim")
    mend = Text("  mend: ", "dim").append(one.mend, "green")
    return [head, Text(f"  {one.found}"), mend]


def _objects(one: Finding) -> str:
    every = (one.object, *one.others)
    if len(every) <= _SHOWN:
        return ", ".join(every)
    return f"{', '.join(every[:_SHOWN])} and {len(every) - _SHOWN} more"


def as_document(findings: Iterable[Finding]) -> RawObject:
    """Return what `-o json` prints."""
    listed = list(findings)
    return {
        "errors": errors(listed),
        "summary": summary(listed),
        "findings": [
            {
                "severity": one.severity,
                "check": one.check,
                "objects": [one.object, *one.others],
                "found": one.found,
                "mend": one.mend,
            }
            for one in listed
        ],
    }
