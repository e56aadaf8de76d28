"""Reads engines' metrics through the API server: `kubectl proxy`, and only while a page asks.

The proxy listens on a socket in a folder that only the user can open, and passes on requests for
metrics alone: on a port, every user of the machine would have this user's access.
"""

import http.client
import json
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rlfleet_kubectl.kubectl import Kubectl
from rlfleet_view import load
from rlfleet_view.fleet import ObservedFleet, RawObject
from rlfleet_view.load import EngineLoad, LoadHistory

ENGINE_PORT = 8000
_ACCEPTED = "^/api/v1/namespaces/[^/]+/pods/[^/]+/proxy/metrics$"
_START_S = 10.0
_REPLY_S = 5.0
_AT_ONCE = 8
_OK = 200
_MOST_BYTES = 4 * 1024 * 1024


class _Connection(http.client.HTTPConnection):
    """A connection to the proxy's socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_REPLY_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_REPLY_S)
        self.sock.connect(str(self._path))


class EngineMetrics:
    """The load of each fleet that a page shows."""

    def __init__(self, kubectl: Kubectl) -> None:
        """Start no process yet."""
        self._kubectl = kubectl
        self._histories: dict[str, LoadHistory] = {}
        self._lock = threading.Lock()
        self._folder: Path | None = None
        self._proxy: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()
        self._is_closed = False

    def look(self, fleet: ObservedFleet) -> RawObject:
        """Return the load of a fleet, after another look at its engines if the last is old."""
        with self._lock:
            history = self._histories.setdefault(
                str(fleet.raw["metadata"].get("uid")), LoadHistory()
            )
            now = time.time()
            if history.is_due(now):
                names = [row.name for row in fleet.workers]
                asked = names[: load.MOST_WORKERS]
                history.add(now, self._loads(fleet.namespace, asked), len(names) + fleet.left_out)
            return history.as_json()

    def close(self) -> None:
        """End the proxy; a look under way in another thread starts none afterwards."""
        with self._starting:
            self._is_closed = True
            if self._proxy is not None:
                self._proxy.terminate()
                self._proxy.wait()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _loads(self, namespace: str, names: list[str]) -> dict[str, EngineLoad | str]:
        at = self._socket()
        if at is None:
            return dict.fromkeys(names, "kubectl proxy did not start; try it by hand")
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = pool.map(lambda name: _asked(at, namespace, name), names)
            return dict(zip(names, found, strict=True))

    def _socket(self) -> Path | None:
        """Return the proxy's socket, after starting it if it does not run."""
        with self._starting:
            if self._is_closed:
                return None
            at, proxy = self._started()
        deadline = time.monotonic() + _START_S
        while not at.exists():
            if time.monotonic() > deadline or proxy.poll() is not None:
                return None
            time.sleep(0.05)
        return at

    def _started(self) -> tuple[Path, "subprocess.Popen[bytes]"]:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="rlfleet-"))
        at = self._folder / "proxy"
        if self._proxy is None or self._proxy.poll() is not None:
            at.unlink(missing_ok=True)
            words = ("proxy", f"--unix-socket={at}", f"--accept-paths={_ACCEPTED}")
            quiet = subprocess.DEVNULL
            self._proxy = subprocess.Popen(self._kubectl.words(*words), stdout=quiet, stderr=quiet)
        return at, self._proxy


def _asked(at: Path, namespace: str, name: str) -> EngineLoad | str:
    """Return an engine's load, or why there is none."""
    connection = _Connection(at)
    try:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}:{ENGINE_PORT}/proxy/metrics"
        connection.request("GET", path)
        reply = connection.getresponse()
        text = reply.read(_MOST_BYTES).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    if reply.status != _OK:
        return _why(text) or f"status {reply.status}"
    return load.parsed(text) or "no series of vLLM in its metrics"


def _why(text: str) -> str:
    """Return the message of the API server's error."""
    try:
        said = json.loads(text)
    except ValueError:
        return ""
    return str(said.get("message", "")) if isinstance(said, dict) else ""
