import re
from pathlib import Path

from dev import cache
from dev.tour import script
from dev.tour.script import Command, Part, Picture, Requests, Text

PAGE = """\
# A tour

    $ kubectl get rlf
    shown as it is
<!-- requests: begin -->
<!-- picture: fleet: The fleet: at rest -->
<!-- picture: phone: On a phone: 390 844 dark -->
<!-- requests: end -->
"""


def test_a_page_is_text_commands_pictures_and_requests() -> None:
    assert list(script.parts(PAGE)) == [
        Text("# A tour"),
        Text(""),
        Command("kubectl get rlf"),
        Text("    shown as it is"),
        Requests(is_begin=True),
        Picture("fleet", "The fleet: at rest"),
        Picture("phone", "On a phone", 390, 844, is_dark=True),
        Requests(is_begin=False),
    ]


def test_what_a_command_prints_stands_below_it_without_colours_and_empty_lines() -> None:
    printed = f"\x1b[32mgreen\x1b[0m  \n\n{'x' * 200}\n\n"

    assert script.shown("ls", printed) == [
        "    $ ls",
        "    green",
        "    " + "x" * 159 + "…",
    ]


def test_progress_bars_are_left_out() -> None:
    printed = "\nwriting: 100%|####| 1/1 [00:00<00:00, 301.49it/s]\nwrote it\n"

    assert script.shown("ls", printed) == ["    $ ls", "    wrote it"]


def test_commands_stand_in_fences() -> None:
    lines = ["One.", "", "    $ ls", "      a: 1", "", "", "Two."]

    assert script.page(lines) == "One.\n\n```text\n$ ls\n  a: 1\n```\n\nTwo.\n"


def test_each_marker_of_the_script_is_understood() -> None:
    assert not [one for one in written() if isinstance(one, Text) and "<!--" in one.line]


def written() -> list[Part]:
    return list(script.parts(Path(script.__file__).with_name("script.md").read_text()))


def shown_page() -> list[str]:
    return (cache.REPOSITORY / "docs" / "tour.md").read_text().splitlines()


def filled(line: str) -> str:
    """Return the pattern of a line: the page names charts, images and a commit that there were."""
    return re.sub(r"\\\$[A-Z_]+", r"[^ ,]+", re.escape(line))


def pattern_of(part: Part) -> str:
    """Return the pattern of the page's line for a part; empty without one."""
    match part:
        case Text(line):
            return filled(line)
        case Command(line):
            return filled(f"$ {line}")
        case Picture():
            return re.escape(f"![{part.caption}](assets/tour-{part.name}.png)")
        case Requests(is_begin=True):
            return ""
        case Requests():
            return r"[0-9]+ requests were sent, none was lost; the slowest took [0-9.]+ s\."


def test_the_page_shows_the_commands_of_the_script_and_no_other() -> None:
    expected = [pattern_of(part) for part in written() if isinstance(part, Command)]
    shown = [line for line in shown_page() if line.startswith("$ ")]

    for line, pattern in zip(shown, expected, strict=False):
        assert re.fullmatch(pattern, line), "docs/tour.md is of an older script: run `make tour`"
    assert len(shown) == len(expected)


def test_the_page_has_the_words_and_pictures_of_the_script_in_their_order() -> None:
    left = iter(shown_page())

    for pattern in filter(None, map(pattern_of, written())):
        assert any(re.fullmatch(pattern, line) for line in left), f"not there: {pattern}"
