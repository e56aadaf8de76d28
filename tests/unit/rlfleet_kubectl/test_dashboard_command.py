"""`kubectl rlf dashboard` as a process; kubectl and the browser are scripts."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

KUBECTL = """#!/bin/sh
case "$*" in
  *jsonpath*) echo rl ;;
  *"config view"*) echo '{"contexts": [{"name": "here"}]}' ;;
  *watch=*) exec sleep 60 ;;
  *) echo '{"metadata": {"resourceVersion": "1"}, "items": []}' ;;
esac
"""
BROWSER = f"""#!{sys.executable}
import pathlib, sys, urllib.error, urllib.request
try:
    urllib.request.build_opener(urllib.request.ProxyHandler({{}})).open(sys.argv[1], timeout=20)
except (OSError, ValueError) as error:
    said = str(getattr(error, "code", error))
else:
    said = "200"
pathlib.Path(sys.argv[0]).with_suffix(".said").write_text(said)
"""


def test_a_browser_that_ends_only_with_its_user_gets_the_page(tmp_path: Path) -> None:
    """As w3m and lynx, which Python takes on a machine without a screen."""
    for name, text in (("kubectl", KUBECTL), ("browser", BROWSER)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    said = tmp_path / "browser.said"
    path = os.pathsep.join([str(tmp_path), *os.get_exec_path()])
    process = subprocess.Popen(
        ["env", "--default-signal=INT", sys.executable, "-m", "rlfleet_kubectl", "dashboard"],
        env={
            "PATH": path,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "BROWSER": f"{tmp_path / 'browser'} %s",
        },
        stdout=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while not said.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)

    # It keeps no cookies: the address let it in, the page behind it does not.
    assert said.read_text() == "403"
