"""`make docs` makes a site of all pages that asks no other host, and whose search finds words."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dev.docs.site import pages

pytestmark = pytest.mark.integration

LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=\"((?:https?:)?//[^\"]+)")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "docs"
    # In a process of its own: the tests make errors of warnings, of Sphinx's libraries too.
    words = [sys.executable, "-m", "dev.docs.site", str(folder)]
    done = subprocess.run(words, cwd=pages.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_each_page_is_there_and_in_the_navigation(made: Path) -> None:
    first = (made / "index.html").read_text()
    names = [page.removesuffix(".md") + ".html" for page in pages.pages()]

    assert [name for name in names if not (made / name).is_file()] == []
    assert [name for name in names if f'href="{name}"' not in first] == []


def test_nothing_is_loaded_from_another_host(made: Path) -> None:
    found = {
        (path.name, host)
        for path in made.rglob("*.html")
        for host in LOADED.findall(path.read_text())
    }

    assert found == set()


def test_the_search_knows_words_of_the_pages(made: Path) -> None:
    index = (made / "searchindex.js").read_text()

    assert "drainsecond" in index
    assert "docs/how-to/storage" in index
