"""Debian's Chromium, headless, driven over WebDriver; selenium's calls run in threads."""

import asyncio
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.integration.conftest import WAIT_S

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars"),
)

_CONTRASTS = """
const parsed = (text) => {
  const found = text.match(/[\\d.]+/g).map(Number);
  return found.length > 3 ? found : [...found, 1];
};
const light = ([r, g, b]) => {
  const [x, y, z] = [r, g, b].map((v) => v / 255).map((v) =>
    v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
};
const behind = (node) => {
  for (let at = node; at; at = at.parentElement) {
    const colour = parsed(getComputedStyle(at).backgroundColor);
    if (colour[3] === 1) return colour;
  }
  return [255, 255, 255, 1];
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const found = [];
while (walker.nextNode()) {
  const node = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || !node.checkVisibility()) continue;
  const [one, other] = [parsed(getComputedStyle(node).color), behind(node)].map(light);
  const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  found.push([ratio, walker.currentNode.data.trim().slice(0, 40)]);
}
return found;
"""


class Browser:
    """One window of Chromium."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    async def open(self, url: str) -> None:
        """Open an address in the window, with its network log empty."""
        await asyncio.to_thread(self.driver.get_log, "performance")
        await asyncio.to_thread(self.driver.get, url)

    async def run(self, script: str, *words: Any) -> Any:
        """Return what JavaScript returns."""
        return await asyncio.to_thread(self.driver.execute_script, script, *words)

    async def text(self, css: str = "body") -> str:
        """Return the text that is shown of the first such element, its words in one line."""
        found = await self.run("return document.querySelector(arguments[0])?.innerText ?? ''", css)
        return " ".join(str(found).split())

    async def sees(self, text: str, css: str = "body") -> None:
        """Wait until an element shows a text."""
        deadline = time.monotonic() + WAIT_S
        while text not in (shown := await self.text(css)):
            assert time.monotonic() < deadline, f"{text!r} is not in {css}: {shown}"
            await asyncio.sleep(0.1)

    async def count(self, css: str) -> int:
        """Return how many such elements there are."""
        return int(await self.run("return document.querySelectorAll(arguments[0]).length", css))

    async def click(self, css: str) -> None:
        """Click an element as a user does."""
        await asyncio.to_thread(lambda: self.driver.find_element("css selector", css).click())

    async def type(self, css: str, text: str) -> None:
        """Type into a field."""
        await asyncio.to_thread(
            lambda: self.driver.find_element("css selector", css).send_keys(text)
        )

    async def looks(self, *, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        """Set the size of the window, and the system's colour scheme."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        await self._command("Emulation.setEmulatedMedia", {"features": [feature]})
        await self._command("Emulation.setDeviceMetricsOverride", size)

    async def contrasts(self) -> list[tuple[float, str]]:
        """Return the contrast of each text that is shown with what is behind it."""
        return [(float(ratio), str(text)) for ratio, text in await self.run(_CONTRASTS)]

    async def hosts(self) -> set[str]:
        """Return the hosts that requests went to since the page was opened."""
        log = await asyncio.to_thread(self.driver.get_log, "performance")
        messages = [json.loads(entry["message"])["message"] for entry in log]
        asked = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        assert asked, "the network log is empty"
        return {urlsplit(one["request"]["url"]).netloc.rpartition("@")[2] for one in asked}

    async def errors(self) -> list[str]:
        """Return what the console has of errors, violations of the policy among them."""
        log = await asyncio.to_thread(self.driver.get_log, "browser")
        return [str(entry["message"]) for entry in log]

    async def save(self, path: Path) -> None:
        """Write what the window shows as PNG."""
        await asyncio.to_thread(self.driver.save_screenshot, str(path))

    async def _command(self, name: str, words: dict[str, Any]) -> None:
        await asyncio.to_thread(self.driver.execute_cdp_cmd, name, words)


@contextmanager
def running(profile: Path) -> Iterator[Browser]:
    """Run Chromium with an empty profile until left."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
