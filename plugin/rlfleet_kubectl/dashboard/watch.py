"""Keeps a board current by one `kubectl get --watch`, with its own thread."""

import json
import subprocess
import threading

from rlfleet_kubectl.core.names import FLEETS
from rlfleet_kubectl.dashboard.board import Board, key_of
from rlfleet_kubectl.errors import PluginError
from rlfleet_kubectl.kubectl import Kubectl
from rlfleet_view.fleet import ObservedFleet

_AGAIN_S = 2.0
_AGAIN_AFTER_ERROR_S = 5.0


class BoardWatch:
    """Watches the fleets of a namespace, or with --all-namespaces of all."""

    def __init__(self, kubectl: Kubectl, flags: tuple[str, ...], board: Board) -> None:
        """Watch with these flags; ``start`` begins."""
        self._kubectl, self._flags, self._board = kubectl, flags, board
        self._ended = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def close(self) -> None:
        """End kubectl and the thread."""
        self._ended.set()
        if self._process is not None:
            self._process.kill()
        self._thread.join(timeout=_AGAIN_AFTER_ERROR_S)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                # A list first: a watch does not say what was deleted before it began.
                self._board.replace(self._kubectl.fleets(*self._flags))
                self._board.report("")
                self._follow()
                pause_s = _AGAIN_S
            except PluginError as error:
                self._board.report(f"fleets cannot be read: {error}")
                pause_s = _AGAIN_AFTER_ERROR_S
            self._ended.wait(pause_s)

    def _follow(self) -> None:
        words = ("get", FLEETS, "-o", "json", "--watch", "--output-watch-events", *self._flags)
        with subprocess.Popen(
            self._kubectl.words(*words),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as self._process:
            try:
                # Unlike objects, kubectl prints each event as one line.
                for line in self._process.stdout or ():
                    event = json.loads(line)
                    if self._ended.is_set() or event["type"] == "ERROR":
                        return
                    self._take(event["type"], ObservedFleet(event["object"]))
            finally:
                self._process.kill()

    def _take(self, kind: str, fleet: ObservedFleet) -> None:
        if kind == "DELETED":
            self._board.remove(key_of(fleet))
        elif kind != "BOOKMARK":
            self._board.put(fleet)
