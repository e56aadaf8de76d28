"""Where in a text the secrets are: in a log, an argument, a message.

A quick search finds the words that secrets stand after, and only there a rule is tried. So a log
of megabytes takes no minute.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from rlfleet_kubectl.core.secret_names import WORDS, is_secret_name

REMOVED = "[removed]"
_QUOTE = r"""\\{0,7}["']"""
"""With the backslashes of JSON within JSON."""
_BARE = r"""(?:[^\s&,;"'}\])\\]|[&,;}\])]+(?![\w.-]*[=:]|[\s"'\\&,;}\])]|$))+"""
"""A value without quotes ends at a space, and where another name follows a comma."""
_GAP = rf"(?:[=\s]|{_QUOTE}?,?)"
_SPACE = r"(?:\s|\\{1,7}[nt]){1,8}"
_TIME = r"\d{4}-\d\d-\d\dT[\d:.]+Z[ ]"
"""What kubectl writes before each line of a log."""
_LINE = rf"(?:\r?\n|(?:\\{{1,7}}r)?\\{{1,7}}n)(?:{_TIME})?"
"""A newline, also as JSON writes it."""
_NEXT = rf"[ \t]{{0,3}}(?:{_LINE}[ \t]+(?!-\s|[\w.-]+:(?:\s|$)))?"
"""What is before a value: it may stand in the next line, unless that has a name of its own."""
_QUOTED = rf"""
    (?P<fence>(?:\\{{0,7}}"){{3}}|(?:\\{{0,7}}'){{3}})(?P<fenced>(?s:.){{1,5000}}?)(?:(?P=fence)|\Z)
   |(?P<quote>{_QUOTE})
    (?P<quoted>(?:[^\n]|\n(?={_TIME}[ \t]|[ \t])){{0,5000}}?(?=(?<!\\)(?P=quote))|[^\n]*)
"""
"""It ends at the same quote, of TOML at three; in YAML also some indented lines later."""
_REST = r"(?:(?!\\{1,7}[rn])(?:[^\n\"]|(?<=\\)\"))+"
"""Of a line: within JSON it ends at the string's end, too."""
_BLOCK = rf"""
    (?:[&!]\S{{1,60}}[ ]+){{0,2}}[|>][-+1-9]{{0,2}}[ ]*(?:\#[^\n\\]*)?
    (?P<block>
      (?:{_LINE}[ \t]*(?=[\r\n\\]))*+{_LINE}(?P<deep>[ \t]+){_REST}
      (?:{_LINE}(?:(?P=deep){_REST}|[ \t]*(?=[\r\n\\])))*+
    )
   |[ ]*(?P<items>(?:{_LINE}[ \t]*-[ ]+(?!{_REST}:[ ]){_REST})++)
"""
"""A block of YAML: all lines that are as deep as its first one; or a list of values."""
_LINES = frozenset({"block", "items", "listed", "fenced"})
_PEM = r"[ A-Z]*PRIVATE[ ]KEY(?:[ ]BLOCK)?-----"


@dataclass(frozen=True, slots=True)
class _Rule:
    """A pattern whose last group is the secret; it is tried where one of the words stands."""

    words: re.Pattern[str]
    pattern: re.Pattern[str]
    counts: Callable[[re.Match[str]], bool]
    """Whether what matches is a secret."""

    def found(self, written: str) -> Iterator[re.Match[str]]:
        # A capital that has two characters in lower case would shift all positions.
        lowered = written.replace("\u0130", "I").lower()
        end = 0
        for at in self.words.finditer(lowered):
            if at.start() < end:
                continue
            match = self.pattern.match(written, at.start())
            if match and self.counts(match):
                yield match
                # Of lines that are removed together, none is looked at again.
                end = match.end() if match.lastgroup in _LINES else 0


def _rule(
    words: Iterable[str], pattern: str, counts: Callable[[re.Match[str]], bool] = lambda _: True
) -> _Rule:
    flags = re.IGNORECASE | re.VERBOSE | re.MULTILINE
    return _Rule(re.compile("|".join(words)), re.compile(pattern, flags), counts)


def _has_secret_name(found: re.Match[str]) -> bool:
    name = _name_of(found)
    return is_secret_name(name) and (name.startswith("-") or not found["follows"])


_NAMED = _rule(
    WORDS,
    rf"""
    (?P<name>[A-Za-z0-9_.-]{{3,40}}+)
    (?:
      (?:(?:{_QUOTE})?(?:[=:]|%3D)|\s{{1,2}}[=:]|{_QUOTE}\s{{1,2}}:(?=\s*{_QUOTE})){_NEXT}
     |(?:{_QUOTE})?[,:]?(?:{_LINE}|[ \t]){{1,40}}(?:{_QUOTE})?value(?:{_QUOTE})?:{_NEXT}
     |(?P<follows>{_QUOTE},\s{{0,3}}(?={_QUOTE}[^-])|[ ]+(?={_QUOTE}[^-]|[^-\s"'\\][^\s"']{{5}}))
    )
    (?:
      {_BLOCK}
     |\[(?P<listed>(?!removed\])(?:[^\]\n]|\n(?={_TIME}[ \t]|[ \t]))+)
     |{_QUOTED}
     |(?P<bare>(?!-\s|{_TIME}){_BARE}(?:[ \t]*{_LINE}[ \t]+[^\s:=\\]{{6,}}(?=[ \t\r]*$))*)
    )
    """,
    _has_secret_name,
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
        if found.lastgroup in _LINES or "\n" in value:
            between = r"[\n,]" if found.lastgroup == "listed" else r"\n"
            parts = [one.strip(" \t\r-\"'") for one in re.split(between, value)]
        yield from (one for one in parts if one)


def _marked(written: str) -> Iterator[re.Match[str]]:
    for rule in (_NAMED, _LOGIN):
        for found in rule.found(written):
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
