"""The script of the tour: a page whose commands are run, and what they print put below. Pure."""

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_COMMAND = "    $ "
_INDENT = "    "
_PICTURE = re.compile(
    r"<!-- picture: (?P<name>[a-z-]+): (?P<caption>.+?)(: (?P<size>[0-9 ]+dark))? -->"
)
_REQUESTS = re.compile(r"<!-- requests: (begin|end) -->")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_PROGRESS = re.compile(r"\d+%\|.*/s\]")
_WIDTH = 160


@dataclass(frozen=True)
class Text:
    """A line that stays as it is."""

    line: str


@dataclass(frozen=True)
class Command:
    """A line for bash."""

    line: str


@dataclass(frozen=True)
class Picture:
    """The dashboard in a browser, by now."""

    name: str
    caption: str
    width: int = 1280
    height: int = 800
    is_dark: bool = False


@dataclass(frozen=True)
class Requests:
    """Clients send requests from here on, or end and are counted."""

    is_begin: bool


Part = Text | Command | Picture | Requests


def parts(page: str) -> Iterator[Part]:
    """Yield what a page is made of, line by line."""
    for line in page.splitlines():
        if line.startswith(_COMMAND):
            yield Command(line.removeprefix(_COMMAND))
        elif found := _PICTURE.fullmatch(line):
            yield _picture(found)
        elif found := _REQUESTS.fullmatch(line):
            yield Requests(is_begin=found[1] == "begin")
        else:
            yield Text(line)


def _picture(found: re.Match[str]) -> Picture:
    name, caption, size = found["name"], found["caption"], found["size"]
    if size is None:
        return Picture(name, caption)
    width, height, _dark = size.split()
    return Picture(name, caption, int(width), int(height), is_dark=True)


def shown(command: str, output: str) -> list[str]:
    """Return the lines of the page for a command and what it printed."""
    printed = _COLOURS.sub("", output).splitlines()
    lines = [line for line in printed if line.strip() and not _PROGRESS.search(line)]
    cut = [line[: _WIDTH - 1] + "…" if len(line) > _WIDTH else line for line in lines]
    return [f"{_COMMAND}{command}", *((_INDENT + line).rstrip() for line in cut)]


def page(lines: Iterable[str]) -> str:
    """Return the page: commands with their output in fences, and no empty line twice."""
    made: list[str] = []
    for is_shown, some in itertools.groupby(lines, lambda line: line.startswith(_INDENT)):
        block = [line.removeprefix(_INDENT) for line in some]
        made += ["```text", *block, "```"] if is_shown else block
    return re.sub(r"\n{3,}", "\n\n", "\n".join(made)).strip("\n") + "\n"
