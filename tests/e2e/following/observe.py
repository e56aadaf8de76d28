"""Commands whose output is recorded while they run: each line with the moment at which it came."""

import json
import subprocess
import threading
import time
from types import TracebackType
from typing import Any, Self

from dev.shell import Shell
from dev.steps import StepFailed
from tests.e2e.following.timeline import Line

_AGAIN_S = 1.0
_END_S = 60.0


class Stream:
    """Runs kubectl in the background, again each time that it ends: a watch has a time limit."""

    def __init__(self, shell: Shell, *words: str) -> None:
        self.lines: list[Line] = []
        self._shell, self._words = shell, words
        self._is_over = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        if self._process is not None:
            self._process.kill()
        self._thread.join(_END_S)

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._process = self._shell.start(*self._words)
            for line in self._process.stdout or ():
                self.lines.append((time.monotonic(), line))
            self._process.wait()
            self._is_over.wait(_AGAIN_S)


class Clients:
    """The clients in the observer's pod, which send requests until `end`."""

    def __init__(self, shell: Shell, url: str) -> None:
        words = ("exec", "-i", "observer", "--", "python3", "/following/ask.py", url)
        self._process = shell.start(*words)
        self.prompts: list[list[int]] = json.loads(self._first())["prompts"]
        self.records: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _first(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith('{"prompts"'):
            raise StepFailed(f"the clients did not begin: {line}{self._process.stdout.read()}")
        return line

    def _read(self) -> None:
        for line in self._process.stdout or ():
            # What kubectl says itself is no record.
            if line.startswith('{"prompt"'):
                self.records.append(json.loads(line))

    @property
    def are_running(self) -> bool:
        """Whether they still send requests."""
        return self._process.poll() is None

    def end(self) -> None:
        """Let each end its last request."""
        if not self.are_running:
            raise StepFailed(f"the clients ended by themselves after {len(self.records)} requests")
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_END_S)
        self._thread.join(_END_S)
