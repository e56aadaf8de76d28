"""What must not leave the cluster in a support bundle: tokens, passwords, keys.

Values that a name marks as secret are learned first, so that the same value is also removed where
no name marks it: in a log line, in an argument. When in doubt a value is removed.
"""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from rlfleet_view.fleet import RawObject

REMOVED = "[removed]"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_LEAST = 6
"""Shorter values are not removed elsewhere: they would be found in half of all words."""
_WORDS = frozenset({"disabled", "enabled", "default", "failed", "required", "optional", "rlfleet"})
"""Values of names such as AUTH that are words: they too stand everywhere."""
_PROSE = frozenset({"message", "reason", "note", "description"})
"""Fields whose text assigns nothing that was worth to learn."""
_STRONG = (
    r"token|secret|passw(?:or)?d|passphrase|credential|api[-_.]?key|access[-_.]?key"
    r"|private[-_.]?key"
)
_WEAK = r"authorization|auth|pass|pwd|signature|cookie|sig|bearer|dsn|key"
"""Count only as words of their own: `key`, and not `monkey`."""
_SHORT = r"jwt|pat|sas"
"""As these, of variables and fields: in a text they begin too many other words."""
_END = r"s?(?:$|[-_./0-9]|(?-i:(?=[A-Z])))"
_NAME = re.compile(
    rf"(?:{_STRONG}|(?:^|[-_./]|(?-i:(?<=[a-z])(?=[A-Z])))(?:{_WEAK}|{_SHORT})){_END}",
    re.IGNORECASE,
)
_OF_ACCESS = "".join(rf"(?<!{word})(?<!{word}[-_.])" for word in ("api", "auth", "access"))
_COUNTS = (
    r"(?<![A-Za-z])(?:(?:max|num)[-_]\w*|(?-i:(?:max|num)[A-Z]\w*)|expiration\w*)"
    r"(?<!key)(?<!token)(?<!secret)(?<!password)"
)
"""max_tokens and numKeyValueHeads, but no MINIMAX_API_KEY, MAXMIND_LICENSE_KEY, MAX_API_KEY."""
_HARMLESS = re.compile(
    rf"(?:name|names|ref|path|file|dir|mount|seconds|ttl|optional|type|limit|{_OF_ACCESS}tokens"
    rf"|policy|class|count|{_COUNTS}|length)$",
    re.IGNORECASE,
)
"""How names end whose value only says where a secret is, or counts tokens of a model."""
_PLAIN_KEYS = frozenset(
    {"key", "automountServiceAccountToken", "topologyKey", "configMapKeyRef", "secretKeyRef"}
)
"""Fields of Kubernetes whose values name a key, and are none."""
_WORDS_OF_TEXT = re.compile(
    r"""
    (?P<scheme>\b(?:bearer|basic|negotiate|token(?=\s+\S*\d))\s+)[A-Za-z0-9._~+/=:-]{6,}
    |(?P<header>\bauthorization\\?["']?\s{0,2}[:=]\s{0,3}\\?["']?
     (?:\[removed\]|[a-z][\w-]{0,30})\s+)[A-Za-z0-9._~+/=:-]{6,}
    |(?P<user>[a-z][a-z0-9+.-]{0,30}://)[^/\s"']+@
    |(?P<begin>-----BEGIN[ A-Z]*PRIVATE[ ]KEY-----).*?(?:-----END[ A-Z]*PRIVATE[ ]KEY-----|\Z)
    |(?-i:\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?)
    |(?-i:\b(?:hf_|gh[pousr]_|AKIA|ASIA|AIza)[A-Za-z0-9]{16,})
    |(?-i:\b(?:sk-|glpat-|xox[abprs]-|github_pat_)[A-Za-z0-9_-]{16,})
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_ASSIGNED = re.compile(
    rf"""(?P<sign>(?:{_STRONG}|{_WEAK})[A-Za-z0-9_.-]{{0,12}}(?:\\?["']?(?:[=:]|%3D)|\s{{1,2}}[=:]"""
    r"""|\\?["']\s{1,2}:(?=\s*\\?["']))\s{0,3})"""
    r"""(?P<value>\\?"(?:[^"\\]|\\[^"])*\\?"|'[^']*'|[^\s&,;"'}\])\\]+)""",
    re.IGNORECASE,
)
_FLAGGED = re.compile(
    r"""(?P<flag>(?<![\w-])--?[a-z0-9_-]{0,40}?"""
    r"""(?:token|secret|passw(?:or)?d|credential|api[-_]?key|access[-_]?key)[ ]+\\?["']?)"""
    r"""(?P<value>(?!-|\[removed)(?:(?<=")[^"\n]*[^"\n\\]|(?<=')[^'\n]+|[^\s"']{5,}[^\s"'\\]))""",
    re.IGNORECASE,
)
"""A flag and its value within one string, as of a shell."""
_BEFORE = re.compile(r"[A-Za-z0-9_.-]{0,40}$")
"""What of a name stands before the word that marks it: found backwards, so that logs are quick."""


def is_secret_name(name: str) -> bool:
    """Return whether a variable, flag, header or field of this name holds a secret."""
    bare = name.lstrip("-")
    return bare not in _PLAIN_KEYS and bool(_NAME.search(bare)) and not _HARMLESS.search(bare)


def text(written: str, known: Iterable[str] = ()) -> str:
    """Return a text without secrets; ``known`` are values that were learned."""
    for value in sorted(known, key=len, reverse=True):
        written = written.replace(value, REMOVED)
    written = _WORDS_OF_TEXT.sub(_of_words, written)
    written = _FLAGGED.sub(_of_flag, written)
    return _ASSIGNED.sub(_of_assigned, written)


def _of_words(found: re.Match[str]) -> str:
    kept = found["scheme"] or found["header"] or found["user"] or found["begin"] or ""
    return f"{kept}{REMOVED}{'@' if found['user'] else ''}"


def _of_flag(found: re.Match[str]) -> str:
    return f"{found['flag']}{REMOVED}"


def _of_assigned(found: re.Match[str]) -> str:
    if (
        not is_secret_name(_name_of(found))
        or REMOVED.rstrip("]") in found["value"]
        or _is_plain(found["value"])
    ):
        return found[0]
    quote = re.match(r"\\?[\"']", found["value"])
    around = quote[0] if quote else ""
    return f"{found['sign']}{around}{REMOVED}{around}"


def _name_of(found: re.Match[str]) -> str:
    """Return the whole name that something is assigned to, without quotes and the sign."""
    before = _BEFORE.search(found.string[max(0, found.start() - 40) : found.start()])
    sign = re.sub(r"%3D\s*$", "", found["sign"], flags=re.IGNORECASE)
    return (before[0] if before else "") + sign.strip(" \t\n=:\\\"'")


def _is_plain(value: str) -> bool:
    """Return whether a value is a number or a word of JSON, as counts of tokens are."""
    return bool(
        re.fullmatch(r"[\"']?(?:[\d.]{1,12}|true|false|null|none)[\"']?", value, re.IGNORECASE)
    )


def learned(documents: Iterable[RawObject]) -> frozenset[str]:
    """Return the values that names in these documents mark as secret."""
    found = (value for one in documents for value in _marked(one))
    return frozenset(one for one in found if len(one) >= _LEAST and one.lower() not in _WORDS)


def _marked(raw: Any) -> Iterator[str]:
    if isinstance(raw, list):
        yield from _after_flags(raw)
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
        if isinstance(value, str) and is_secret_name(name):
            yield value
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
    for found in _ASSIGNED.finditer(raw):
        value = found["value"].strip("\\\"'")
        if is_secret_name(_name_of(found)) and not _is_plain(value):
            yield value
    yield from (one["value"] for one in _FLAGGED.finditer(raw))
    for found in re.finditer(r"://([^/\s\"']+)@", raw):
        yield from (part for part in found[1].split(":", 1) if part)


def _is_variable(raw: RawObject) -> bool:
    """Return whether it is a container's variable or an HTTP header with a secret's name."""
    return is_secret_name(str(raw.get("name", ""))) and isinstance(raw.get("value"), str)


def _after_flags(raw: list[Any]) -> Iterator[str]:
    """Yield arguments that follow a flag of a secret's name: --api-key, X."""
    for flag, value in pairwise(raw):
        if isinstance(value, str) and _is_secret_flag(flag) and not value.startswith("-"):
            yield value


def _is_secret_flag(flag: Any) -> bool:
    return (
        isinstance(flag, str) and flag.startswith("-") and "=" not in flag and is_secret_name(flag)
    )


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
        hidden = frozenset(_after_flags(raw))
        return [
            REMOVED if isinstance(one, str) and one in hidden else _cleaned(one, known)
            for one in raw
        ]
    if isinstance(raw, dict):
        return {name: _of_field(raw, name, value, known) for name, value in raw.items()}
    return text(raw, known) if isinstance(raw, str) else raw


def _of_field(raw: RawObject, name: str, value: Any, known: tuple[str, ...]) -> Any:
    is_hidden = is_secret_name(name) or (name == "value" and _is_variable(raw))
    if is_hidden and isinstance(value, str):
        return REMOVED
    return _cleaned(value, known)
