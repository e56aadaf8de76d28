"""What the linter of prose finds in a page, and what it leaves out."""

import subprocess
import sys
from pathlib import Path

import pytest

from dev.style import LONGEST, ROOT, Finding, findings, findings_in_code

RULED_OUT = [
    "who",
    "whom",
    "whoever",
    "nobody",
    "anybody",
    "somebody",
    "anew",
    "meanwhile",
    "beside",
    "heed",
    "obey",
    "tend",
    "hear",
    "hears",
    "heard",
    "shall",
    "tell",
]


def words(page: str) -> list[str]:
    return [one.word for one in findings(page)]


@pytest.mark.parametrize(
    "word", [*RULED_OUT, "of itself", "no more", "any more", "go on", "goes on"]
)
def test_each_word_of_the_rules_is_found_with_another_instead(word: str) -> None:
    found = findings(f"The worker serves.\n\nThen {word} it is.\n")

    assert [(one.line, one.word) for one in found] == [(3, word)]
    assert found[0].instead


def test_a_word_is_found_as_a_whole_in_capitals_and_across_lines() -> None:
    assert words("Whose tendon shallow? Who is\nthere; it goes\non.\n") == ["who", "goes on"]


def test_a_finding_has_the_line_of_its_word() -> None:
    page = "# A\n\nA pause\nof nobody.\n\n- one\n- two\n  is anew\n\n| a |\n|---|\n| who |"

    assert [one.line for one in findings(page)] == [4, 8, 12]


@pytest.mark.parametrize(
    "page",
    [
        "```python\nshall = who\n```\n",
        "Run it:\n\n    who\n\n    shall\n",
        "The user is `who` here, or ``who ` shall``.\n",
        'It said "nobody\nis there" once.\n',
        "> who shall\n",
        "<!-- who\nshall -->\n",
        "See [the page](who/shall.md).\n",
        "<!-- drawn by dev/x.py: begin -->\n\nwho shall\n\n<!-- drawn by dev/x.py: end -->\n",
    ],
)
def test_what_is_not_prose_is_left_out(page: str) -> None:
    assert findings(page) == []


@pytest.mark.parametrize(
    ("page", "line"),
    [
        ("```\nx\n```\nwho\n", 4),
        ("- an item\n\n    who\n", 3),
        ("A line\n    who\n", 2),
        ('An odd " mark.\n\nwho\n\nAnother " mark.\n', 3),
        ("See [who](a.md).\n", 1),
        ("<!-- drawn by a: begin -->\n<!-- drawn by a: end -->\nwho\n", 3),
    ],
)
def test_prose_next_to_them_is_read(page: str, line: int) -> None:
    assert [(one.line, one.word) for one in findings(page)] == [(line, "who")]


def test_a_long_sentence_is_found_where_it_begins() -> None:
    page = "Short one.\n" + "word " * LONGEST + "\nend. Short.\n"

    instead = "parts of at most 20 words each"
    assert findings(page) == [Finding(2, f"{LONGEST + 1} words", instead)]


@pytest.mark.parametrize("end", [".", "?", ".)", ".**", "\n\n", "\n- ", " |\n| "])
def test_a_sentence_ends_at_its_mark_its_paragraph_its_item_or_its_cell(end: str) -> None:
    half = "word " * (LONGEST - 1) + "word"

    assert findings(f"| {half}{end} {half}" if "|" in end else f"{half}{end} {half}") == []


def test_numbers_and_code_end_no_sentence_and_count_as_one_word() -> None:
    assert words("word " * (LONGEST - 2) + "0.32 `a b. c`.") == []
    assert words("word " * (LONGEST - 1) + "0.32 `a b. c`.") == [f"{LONGEST + 1} words"]


def test_the_command_passes_on_clean_pages_and_fails_on_a_finding(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("One.\n\nNobody.\n")
    command = (sys.executable, "-m", "dev.style")
    clean = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    words = (*command, str(page))
    other = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)

    assert (clean.returncode, clean.stdout) == (0, "")
    assert other.returncode == 1
    assert other.stdout.startswith(f"{page}:3: nobody: name the component")
    assert other.stdout.count("\n") == 1


MODULE = '''
"""Nobody reads this."""

NAME = "whoever"  # who asked
TEXT = f"{NAME} is told"


async def test_it_tells() -> None:
    """Return nothing."""
'''


def test_code_is_read_for_its_strings_comments_and_names_alone() -> None:
    found = [(one.line, one.word) for one in findings_in_code(MODULE)]

    assert found == [(2, "nobody"), (4, "who"), (5, "told"), (8, "tells")]
