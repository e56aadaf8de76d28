from pathlib import Path

from dev.tour import script
from dev.tour.script import Command, Picture, Requests, Text

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
    page = Path(script.__file__).with_name("script.md").read_text()

    assert not [one for one in script.parts(page) if isinstance(one, Text) and "<!--" in one.line]
