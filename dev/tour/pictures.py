"""Pictures of the dashboard, as Chromium shows it: `kubectl rlf dashboard` runs until left."""

import asyncio
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.steps import StepFailed
from dev.tour.script import Picture
from tests.integration.page import browser
from tests.integration.page.browser import Browser

_SETTLES_S = 3.0
"""How long the page has for its first events and the engines' metrics."""


class Camera:
    """A window on the dashboard."""

    def __init__(self, window: Browser, url: str) -> None:
        self._window = window
        self._url = url

    def take(self, picture: Picture, path: Path) -> None:
        """Write what the page shows now."""
        asyncio.run(self._take(picture, path))

    async def _take(self, picture: Picture, path: Path) -> None:
        scheme = "dark" if picture.is_dark else "light"
        await self._window.looks(width=picture.width, height=picture.height, scheme=scheme)
        await self._window.open(self._url)
        await self._window.sees("qwen")
        await asyncio.sleep(_SETTLES_S)
        path.parent.mkdir(exist_ok=True)
        await self._window.save(path)


@contextmanager
def camera(env: dict[str, str]) -> Iterator[Camera]:
    """Run dashboard and browser."""
    argv = ["kubectl", "rlf", "dashboard", "--no-browser"]
    with (
        subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as process,
        tempfile.TemporaryDirectory() as profile,
        browser.running(Path(profile)) as window,
    ):
        try:
            url = process.stdout.readline().strip() if process.stdout else ""
            if not url:
                raise StepFailed("`kubectl rlf dashboard` printed no address; run it by hand")
            yield Camera(window, url)
        finally:
            process.terminate()
