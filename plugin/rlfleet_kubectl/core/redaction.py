"""What must not leave the cluster in a support bundle: tokens, passwords, keys.

Values that a name marks as secret are learned first, so that the same value is also removed where
no name marks it: in a log line, in an argument. When in doubt a value is removed.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from rlfleet_kubectl.core.secret_names import is_secret_name
from rlfleet_kubectl.core.secret_text import REMOVED, marked_values, without_secrets
from rlfleet_view.fleet import RawObject

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_LEAST = 6
"""Shorter values are not removed elsewhere: they would be found in half of all words."""
_WORDS = frozenset({"disabled", "enabled", "default", "failed", "required", "optional", "rlfleet"})
"""Values of names such as AUTH that are words: they too stand everywhere."""
_PROSE = frozenset({"message", "reason", "note", "description"})
"""Fields whose text assigns nothing that was worth to learn."""


def text(written: str, known: Iterable[str] = ()) -> str:
    """Return a text without secrets; ``known`` are values that were learned."""
    for value in sorted(known, key=len, reverse=True):
        written = written.replace(value, REMOVED)
    return without_secrets(written)


def learned(documents: Iterable[RawObject]) -> frozenset[str]:
    """Return the values that names in these documents mark as secret."""
    found = {value for one in documents for value in _marked(one)}
    kept = {one for one in found if len(one) >= _LEAST and one.lower() not in _WORDS}
    # In a log of JSON, quotes and backslashes are escaped.
    return frozenset(kept | {json.dumps(one)[1:-1] for one in kept})


def _marked(raw: Any) -> Iterator[str]:
    if isinstance(raw, list):
        yield from _in_list(raw)
        for one in raw:
            yield from _marked(one)
    elif isinstance(raw, dict):
        yield from _in_fields(raw)
    elif isinstance(raw, str):
        yield from _in_text(raw)


def _in_fields(raw: RawObject) -> Iterator[str]:
    if _is_variable(raw):
        yield str(raw["value"])
    for name, value in raw.items():
        if is_secret_name(name):
            every = value if isinstance(value, list) else [value]
            yield from (one for one in every if isinstance(one, str))
        if not (isinstance(value, str) and name in _PROSE):
            yield from _marked(value)


def _in_text(raw: str) -> Iterator[str]:
    """Yield what is assigned to a secret's name within a string, such as an argument."""
    if raw.startswith("{"):
        try:
            yield from _marked(json.loads(raw))
        except ValueError:
            pass
        else:
            return
    yield from marked_values(raw)


def _is_variable(raw: RawObject) -> bool:
    """Return whether it is a container's variable or an HTTP header with a secret's name."""
    return is_secret_name(str(raw.get("name", ""))) and isinstance(raw.get("value"), str)


def _in_list(raw: list[Any]) -> Iterator[str]:
    """Yield what a flag or a program of a command line marks: --api-key, X and mysql, -pX."""
    if not all(isinstance(one, str) for one in raw):
        return
    for flag, value in pairwise(raw):
        if _is_secret_flag(flag) and not value.startswith("-"):
            yield value
    for value in marked_values(json.dumps(raw)):
        yield from (value, *_unescaped(value))


def _is_secret_flag(flag: str) -> bool:
    return flag.startswith("-") and "=" not in flag and is_secret_name(flag)


def _unescaped(value: str) -> Iterator[str]:
    with contextlib.suppress(ValueError):
        yield json.loads(f'"{value}"')


def document(raw: RawObject, known: Iterable[str] = ()) -> RawObject:
    """Return an object of Kubernetes without secrets, and without what only repeats it."""
    every = tuple(known)
    cleaned: RawObject = _cleaned(raw, every)
    metadata = cleaned.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
        if LAST_APPLIED in (metadata.get("annotations") or {}):
            metadata["annotations"][LAST_APPLIED] = REMOVED
    return cleaned


def _cleaned(raw: Any, known: tuple[str, ...]) -> Any:
    if isinstance(raw, list):
        hidden = frozenset(_in_list(raw))
        return [_of_item(one, hidden, known) for one in raw]
    if isinstance(raw, dict):
        return {name: _of_field(raw, name, value, known) for name, value in raw.items()}
    return text(raw, known) if isinstance(raw, str) else raw


def _of_item(one: Any, hidden: frozenset[str], known: tuple[str, ...]) -> Any:
    if not isinstance(one, str):
        return _cleaned(one, known)
    # A short value is no part of other words where it ends an argument.
    for value in (value for value in hidden if one.endswith(value)):
        return one.removesuffix(value) + REMOVED
    return text(one, known)


def _of_field(raw: RawObject, name: str, value: Any, known: tuple[str, ...]) -> Any:
    is_hidden = is_secret_name(name) or (name == "value" and _is_variable(raw))
    if is_hidden and isinstance(value, str):
        return REMOVED
    if is_hidden and isinstance(value, list):
        return [REMOVED if isinstance(one, str) else _cleaned(one, known) for one in value]
    return _cleaned(value, known)
