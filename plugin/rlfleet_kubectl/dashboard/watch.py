"""Keeps a board current by a list and one watch, with its own thread.

The watch begins where the list ends: `kubectl get --watch` does not, and would miss a fleet that
is deleted in between.
"""

import json
import subprocess
import threading
from urllib.parse import urlencode

from rlfleet_kubectl.dashboard.board import Board, key_of
from rlfleet_kubectl.errors import PluginError
from rlfleet_kubectl.kubectl import TEXT, Kubectl
from rlfleet_view.fleet import ObservedFleet

_AGAIN_S = 2.0
_WATCH_S = 60
_AGAIN_AFTER_ERROR_S = 5.0


def fleets_path(namespace: str | None) -> str:
    """Return the path of the fleets of a namespace; without one, of all."""
    below = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/rlfleet.dev/v1alpha1{below}/rlinferencefleets"


class BoardWatch:
    """Watches the fleets of a namespace, or of all."""

    def __init__(self, kubectl: Kubectl, namespace: str | None, board: Board) -> None:
        """Watch this namespace; ``start`` begins."""
        self._kubectl, self._path, self._board = kubectl, fleets_path(namespace), board
        self._ended = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """List the fleets, then begin to watch; raises PluginError if they cannot be listed."""
        self._list()
        self._thread.start()

    def close(self) -> None:
        """End kubectl and the thread."""
        self._ended.set()
        if self._process is not None:
            self._process.kill()
        if self._thread.is_alive():
            self._thread.join(timeout=_AGAIN_AFTER_ERROR_S)

    def _list(self) -> str:
        """Take all fleets that there are; return the revision of the list."""
        listed = json.loads(self._kubectl.text("get", "--raw", self._path))
        self._board.replace([ObservedFleet(raw) for raw in listed["items"]])
        return str(listed["metadata"]["resourceVersion"])

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                revision = self._list()
                self._board.report("")
                self._follow(revision)
                pause_s = _AGAIN_S
            except PluginError as error:
                self._board.report(f"fleets cannot be read: {error}")
                pause_s = _AGAIN_AFTER_ERROR_S
            self._ended.wait(pause_s)

    def _follow(self, revision: str) -> None:
        """Take each change until the watch ends, as the API server ends each after a while."""
        # One of a definition that was replaced would be silent for as long as it lasts.
        until = {"resourceVersion": revision, "timeoutSeconds": _WATCH_S}
        asked = urlencode({"watch": 1, "allowWatchBookmarks": 1, **until})
        with subprocess.Popen(
            self._kubectl.words("get", "--raw", f"{self._path}?{asked}"),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            **TEXT,
        ) as self._process:
            try:
                for line in self._process.stdout or ():
                    event = json.loads(line)
                    if self._ended.is_set() or event["type"] == "ERROR":
                        return
                    self._take(event["type"], ObservedFleet(event["object"]))
            except ValueError:
                # A line that kubectl's end cut off.
                return
            finally:
                self._process.kill()

    def _take(self, kind: str, fleet: ObservedFleet) -> None:
        if kind == "DELETED":
            self._board.remove(key_of(fleet))
        elif kind != "BOOKMARK":
            self._board.put(fleet)
