"""Photograph the dashboard for docs/assets: python3 -m dev.screenshots [NAMESPACE] [FLEET].

Needs a fleet that serves step-0 and a pod `client` beside it, as `make demo` leaves them, and
Chromium. A rollout runs under load while the page is open; the pictures show what it showed.
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from dev import cache, steps, target
from dev.python import packages
from dev.shell import Shell
from tests.integration.page import browser
from tests.integration.page.browser import Browser

ASSETS = cache.REPOSITORY / "docs" / "assets"
_COLOURS = 128
_TALL = 1260
"""Points down to the end of the charts."""
_LOOKS_S = 40.0
"""How long engines are looked at before and after the change."""


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("namespace", nargs="?", default="rlfleet-demo")
    parser.add_argument("fleet", nargs="?", default="qwen")
    options = parser.parse_args()
    steps.run(packages.steps(packages.BROWSER))
    shell = Shell(target.kubeconfig(), options.namespace)
    ASSETS.mkdir(exist_ok=True)
    with (
        _dashboard(shell) as url,
        tempfile.TemporaryDirectory() as profile,
        browser.running(Path(profile)) as window,
    ):
        asyncio.run(_photograph(window, url, shell, options.fleet))


@contextlib.contextmanager
def _dashboard(shell: Shell) -> Iterator[str]:
    """Run the dashboard; yield its address."""
    words = [sys.executable, "-m", "rlfleet_kubectl", "dashboard", "--no-browser"]
    argv = [*words, f"--namespace={shell.namespace}"]
    env = shell.environment() | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip() if process.stdout else ""
        finally:
            process.terminate()


async def _photograph(window: Browser, url: str, shell: Shell, fleet: str) -> None:
    # A version that does not exist is rejected once the time to prepare is over.
    soon = {"spec": {"weightVersion": "step-0", "rollout": {"timeouts": {"prepareSeconds": 2}}}}
    shell.kubectl("patch", "rlf", fleet, "--type=merge", f"--patch={json.dumps(soon)}")
    shell.kubectl("wait", "--for=condition=WeightsSynced", f"rlf/{fleet}", "--timeout=60s")
    load = ("exec", "-i", "client", "--", "python3", "/demo/traffic.py", f"http://{fleet}:8000")
    traffic = shell.start(*load)
    try:
        await window.looks(height=_TALL)
        await window.open(url)
        await window.sees("Set version", "#part-actions")
        await asyncio.sleep(_LOOKS_S)
        await _set_version(window, "step-1")
        await window.sees("→ step-1 Completed", "#part-rollout")
        await asyncio.sleep(_LOOKS_S)
        await _save(window, "dashboard.png")
        await window.looks(height=_TALL, scheme="dark")
        await _save(window, "dashboard-dark.png")
        await _set_version(window, "step-99")
        await window.sees("Stalled", "#part-alerts")
        await window.looks(width=390, height=844)
        await window.run("scrollTo(0, 0)")
        await _save(window, "dashboard-phone.png")
        await window.looks()
        await _set_version(window, "step-1")
    finally:
        traffic.communicate(input="", timeout=120)


async def _save(window: Browser, name: str) -> None:
    """Write a picture with few colours, which takes a third of the bytes."""
    path = ASSETS / name
    await window.save(path)
    _reduce(path)


def _reduce(path: Path) -> None:
    with Image.open(path) as picture:
        reduced = picture.convert("RGB").quantize(_COLOURS)
    reduced.save(path, optimize=True)


async def _set_version(window: Browser, version: str) -> None:
    """Set a version as a user does."""
    await window.click("[data-action=set-version]")
    await window.type("dialog input[name=version]", version)
    await window.click("dialog button.primary")
    await window.sees("spec.weightVersion", "dialog pre")
    await window.click("dialog button.primary")


if __name__ == "__main__":
    steps.main(main)
