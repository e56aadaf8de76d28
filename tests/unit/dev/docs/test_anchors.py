"""A link with a fragment leads to a heading that is there."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from dev.docs import anchors
from dev.docs.site import staging

ROOT = Path(__file__).resolve().parents[4]
WITH_FRAGMENT = re.compile(r"\]\(([^()\s]*#[^()\s]+)\)")


def pages() -> list[str]:
    words = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "*.md")
    listed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True)
    return sorted(path for path in set(listed.stdout.splitlines()) if (ROOT / path).is_file())


@cache
def anchors_of(page: str) -> set[str]:
    return anchors.anchors((ROOT / page).read_text())


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("Use it with prime-rl", "use-it-with-prime-rl"),
        ("POST /v1/rl/prepare", "post-v1rlprepare"),
        ("`weights.sharing`, and why", "weightssharing-and-why"),
        ("[A page](a.md) of C++", "a-page-of-c"),
        ("Rolling — and Barrier", "rolling--and-barrier"),
    ],
)
def test_an_anchor_is_the_heading_s_words(heading: str, anchor: str) -> None:
    assert anchors.slug(heading) == anchor


def test_headings_of_one_name_are_numbered_and_code_has_none() -> None:
    text = "# A\n## Errors\n```\n# no heading\n```\n## Errors\n"

    assert anchors.anchors(text) == {"a", "errors", "errors-1"}


@pytest.mark.parametrize("page", pages())
def test_no_fragment_leads_nowhere(page: str) -> None:
    lost = []
    for target in WITH_FRAGMENT.findall((ROOT / page).read_text()):
        path, _, fragment = target.partition("#")
        other = page if not path else staging.resolved(page, target)
        if other is not None and other.endswith(".md") and fragment not in anchors_of(other):
            lost.append(target)

    assert lost == []
