"""Reads fields of the JSON files that describe deltas; errors name the field. Pure."""

import json
from collections.abc import Iterable, Iterator, Mapping

from rlfleet_sidecar.deltas.formats.delta import BadDeltaError

JsonFields = Mapping[str, object]


def object_of(data: bytes) -> dict[str, object]:
    """Parse a JSON object in which no name occurs twice."""
    try:
        found = json.loads(data, object_pairs_hook=_once)
    except BadDeltaError:
        raise
    except (ValueError, RecursionError) as error:
        raise BadDeltaError(f"is not JSON ({error}); publish it again") from error
    if not isinstance(found, dict):
        raise BadDeltaError("is not a JSON object; publish it again")
    return found


def text(fields: JsonFields, name: str, where: str) -> str:
    """Return a field that holds a text."""
    value = fields.get(name)
    if not isinstance(value, str):
        raise _wrong(where, name, value, "a text")
    return value


def natural(fields: JsonFields, name: str, where: str) -> int:
    """Return a field that holds a whole number from 0."""
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _wrong(where, name, value, "a whole number")
    return value


def decimal(fields: JsonFields, name: str, where: str) -> int:
    """Return a field that holds a number as text."""
    value = text(fields, name, where)
    if not (value.isascii() and value.isdigit() and len(value) <= 18):  # noqa: PLR2004 - 64 bits
        raise _wrong(where, name, value, "decimal digits")
    return int(value)


def naturals(fields: JsonFields, name: str, where: str) -> tuple[int, ...]:
    """Return a field that holds a list of whole numbers from 0."""
    value = fields.get(name)
    if not isinstance(value, list) or not all(type(one) is int and one >= 0 for one in value):
        raise _wrong(where, name, value, "a list of whole numbers")
    return tuple(value)


def mapping(fields: JsonFields, name: str, where: str) -> JsonFields:
    """Return a field that holds an object."""
    value = fields.get(name)
    if not isinstance(value, dict):
        raise _wrong(where, name, value, "an object")
    return value


def objects(fields: JsonFields, name: str, where: str) -> Iterator[JsonFields]:
    """Yield the objects of a list."""
    value = fields.get(name)
    if not isinstance(value, list):
        raise _wrong(where, name, value, "a list")
    for one in value:
        if not isinstance(one, dict):
            raise _wrong(where, name, one, "a list of objects")
        yield one


def file_name(value: object, where: str, name: str) -> str:
    """Return the name of a payload file; raises if it could lead out of the directory."""
    is_name = isinstance(value, str) and value.endswith(".safetensors") and value.isprintable()
    if not is_name or "/" in str(value) or str(value).startswith("."):
        raise _wrong(where, name, value, "the name of a .safetensors file in its directory")
    return str(value)


def demand(where: str, name: str, got: object, expected: object) -> None:
    """Raise unless a field has the expected value."""
    if got != expected:
        raise _wrong(where, name, got, repr(expected))


def repeated(names: Iterable[str]) -> str | None:
    """Return the first name that was there before; None if each occurs once."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _wrong(where: str, name: str, got: object, expected: str) -> BadDeltaError:
    place = f"{where}.{name}" if where else name
    return BadDeltaError(f"has {place} {str(got)[:80]!r}, expected {expected}; publish it again")


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = repeated(name for name, _ in pairs)
        raise BadDeltaError(f"has {str(twice)[:80]!r} twice; publish each name once")
    return found
