"""Where in a text the secrets are: in a log, an argument, a message.

A quick search finds the words that secrets stand after, and only there a rule is tried. So a log
of megabytes takes no minute.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rlfleet_kubectl.core.secret_names import WORDS, is_secret_name

REMOVED = "[removed]"
_QUOTE = r"""\\{0,7}["']"""
"""With the backslashes of JSON within JSON."""
_BARE = r"""(?:[^\s&,;"'}\])\\]|[&,;}\])]+(?![\w.-]*[=:]|[\s"'\\&,;}\])]|$))+"""
"""A value without quotes ends at a space, and where another name follows a comma."""
_QUOTED = rf"(?P<quote>{_QUOTE})(?P<quoted>[^\n]*?)(?:(?<!\\)(?P=quote)|$)"
_GAP = rf"(?:[=\s]|{_QUOTE}?,?)"
_SPACE = r"(?:\s|\\{1,7}[nt]){1,8}"
_PEM = r"[ A-Z]*PRIVATE[ ]KEY(?:[ ]BLOCK)?-----"


@dataclass(frozen=True, slots=True)
class _Rule:
    """A pattern whose last group is the secret; it is tried where one of the words stands."""

    words: re.Pattern[str]
    pattern: re.Pattern[str]

    def found(self, written: str) -> Iterator[re.Match[str]]:
        # A capital that has two characters in lower case would shift all positions.
        lowered = written.replace("\u0130", "I").lower()
        for at in self.words.finditer(lowered):
            if match := self.pattern.match(written, at.start()):
                yield match


def _rule(words: Iterable[str], pattern: str) -> _Rule:
    flags = re.IGNORECASE | re.VERBOSE | re.MULTILINE
    return _Rule(re.compile("|".join(words)), re.compile(pattern, flags))


_NAMED = _rule(
    WORDS,
    rf"""
    (?P<name>[A-Za-z0-9_.-]{{3,40}}+)
    (?:
      (?:(?:{_QUOTE})?(?:[=:]|%3D)|\s{{1,2}}[=:]|{_QUOTE}\s{{1,2}}:(?=\s*{_QUOTE}))\s{{0,3}}
     |(?:{_QUOTE})?,?\s{{1,40}}(?:{_QUOTE})?value(?:{_QUOTE})?:\s{{0,3}}
     |(?P<follows>{_QUOTE},\s{{0,3}}(?={_QUOTE}[^-])|[ ]+(?={_QUOTE}[^-]|[^-\s"'\\][^\s"']{{5}}))
    )
    (?:\[(?P<listed>(?!removed\])[^\]\n]+)|{_QUOTED}|(?P<bare>{_BARE}))
    """,
)
"""NAME=X, "NAME": "X", {name: NAME, value: X}, and of a flag also --NAME X, ["--NAME", "X"]."""
_LOGIN = _rule(
    ("://", "-u", "--(?:proxy-)?user", "mysql", "mariadb", "sshpass", "redis-cli", "login"),
    rf"""
    ://(?P<url>[^/\s"']+)@
    |(?<![\w-])(?:-u|--user|--proxy-user){_GAP}*[^\s:/"'=,\\-][^\s:/"'\\]*:(?P<user>[^\s"'\\]+)
    |(?:mysql\w*|mariadb[\w-]*|sshpass|redis-cli|login)\b(?=[\s"'\\])[^\n|;&]{{0,200}}?[\s"'](?-i:-[pa])
     (?:{_GAP}*(?P<short>[^\s"'=,\\-][^\s"'\\]*)|{_GAP}*{_QUOTED})
    """,
)
"""URL://X@, curl -u NAME:X, mysql -pX, docker login -p X."""
_SHAPE = _rule(
    (
        *("://", "-----begin", "bearer", "basic", "negotiate", "token", "authorization", "eyj"),
        *("hf_", "gh[pousr]_", "akia", "asia", "aiza", "sk-", "glpat-", "xox", "github_pat_"),
        *("machine", "login"),
    ),
    rf"""
    \b(?:bearer|basic|negotiate|token(?=\s+\S*\d))\s+(?P<scheme>[A-Za-z0-9._~+/=:-]{{6,}})
    |\bauthorization\\{{0,7}}["']?\s{{0,2}}[:=]\s{{0,3}}\\{{0,7}}["']?
     (?:\[removed\]|[a-z][\w-]{{0,30}})\s+(?P<header>[A-Za-z0-9._~+/=:-]{{6,}})
    |(?:machine|login){_SPACE}\S+?(?:{_SPACE}account{_SPACE}\S+?)?
     {_SPACE}password{_SPACE}(?P<netrc>[^\s"'\\]+)
    |-----BEGIN{_PEM}(?P<pem>(?s:.*?))(?:-----END{_PEM}|\Z)
    |://[^\s"'<>]{{0,200}}?hook[^\s"'<>/]*/(?=[^\s"'<>]*\w{{20}})(?P<hook>[^\s"'<>\\]+)
    |(?-i:\b(?P<jwt>eyJ[A-Za-z0-9_-]{{8,}}\.[A-Za-z0-9_-]{{8,}}(?:\.[A-Za-z0-9_-]*)?))
    |(?-i:\b(?P<token>(?:hf_|gh[pousr]_|AKIA|ASIA|AIza)[A-Za-z0-9]{{16,}}))
    |(?-i:\b(?P<hyphens>(?:sk-|glpat-|xox[abprs]-|github_pat_)[A-Za-z0-9_-]{{16,}}))
    """,
)
"""What is secret by its form, whatever its name: tokens, private keys, a webhook's address."""
_BEFORE = re.compile(r"[A-Za-z0-9_.-]{0,40}$")
"""What of a name stands before the word that marks it."""

_PLAIN = re.compile(r"[\d.]{1,12}|true|false|null|none|", re.IGNORECASE)


def without_secrets(written: str) -> str:
    """Return a text without what names, flags, URLs or forms mark as secret."""
    parts, done = [], 0
    spans = sorted(_span(one) for one in (*_marked(written), *_SHAPE.found(written)))
    for begin, end in spans:
        if written.startswith(REMOVED, begin):
            continue
        if begin >= done:
            parts += [written[done:begin], REMOVED]
        done = max(done, end)
    return "".join((*parts, written[done:]))


def marked_values(written: str) -> Iterator[str]:
    """Yield what a name, a flag or a URL marks as secret, and which may stand elsewhere too."""
    for found in _marked(written):
        value = found[found.lastgroup or 0]
        parts = value.split(":", 1) if found.lastgroup == "url" else [value]
        yield from (one for one in parts if one)


def _marked(written: str) -> Iterator[re.Match[str]]:
    for found in _NAMED.found(written):
        name = _name_of(found)
        if is_secret_name(name) and (name.startswith("-") or not found["follows"]):
            yield from _unless_plain(found)
    for found in _LOGIN.found(written):
        yield from _unless_plain(found)


def _span(found: re.Match[str]) -> tuple[int, int]:
    return found.span(found.lastgroup or 0)


def _name_of(found: re.Match[str]) -> str:
    """Return the whole name, also what of it stands before the word that marks it."""
    before = _BEFORE.search(found.string[max(0, found.start() - 40) : found.start()])
    return (before[0] if before else "") + found["name"]


def _unless_plain(found: re.Match[str]) -> Iterator[re.Match[str]]:
    """Yield it unless it is a number or a word of JSON, as counts of tokens are, or was removed."""
    value = found[found.lastgroup or 0]
    if not _PLAIN.fullmatch(value):
        yield found
