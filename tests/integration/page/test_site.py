"""`make docs` makes a site of all pages that asks no other host, and whose search finds words."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dev.docs.site import pages
from tests.integration.page.browser import Browser

pytestmark = pytest.mark.integration

LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=\"((?:https?:)?//[^\"]+)")

_RESULTS = """
    return [...document.querySelectorAll("#search-results a")].map((link) =>
        new URL(link.href).pathname.slice(1))"""


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


async def test_a_reader_finds_a_page_by_a_field_s_name(made: Path, page: Browser) -> None:
    with _served(made) as url:
        await page.open(f"{url}/index.html")
        await page.type("input[name=q]", "drainSeconds\n")
        await page.sees("found", "#search-results")
        found = await page.run(_RESULTS)
        assert "docs/how-to/operate.html" in found, found

        await page.click('#search-results a[href*="how-to/operate.html"]')
        await page.sees("drainSeconds", "article")


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """Serve files on loopback until left."""
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""
