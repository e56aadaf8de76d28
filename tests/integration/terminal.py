"""A program on a pseudo-terminal, and the screen that a person sees of it."""

import os
import re
import select
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

ROWS, COLUMNS = 40, 160
_CODE = re.compile(r"\x1b\[(?P<words>[?0-9;]*)(?P<kind>[A-Za-z])|\x1b[=>]|\x1b\][^\x07]*\x07")
COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-7]|38;[0-9;]+|9[0-7])m")


class Screen:
    """What a terminal shows after all that was printed on it; it never scrolls."""

    def __init__(self) -> None:
        self._lines = [""]
        self._row = self._column = 0

    def print(self, text: str) -> None:
        """Show text with the codes that move the cursor and erase; colours are left out."""
        at = 0
        for code in _CODE.finditer(text):
            self._show(text[at : code.start()])
            if code["kind"] is not None:
                self._move(code["kind"], code["words"])
            at = code.end()
        self._show(text[at:])

    def lines(self) -> list[str]:
        """Return the lines, but the empty ones."""
        return [line.rstrip() for line in self._lines if line.strip()]

    def _show(self, text: str) -> None:
        for letter in text:
            if letter == "\n":
                self._row += 1
                self._lines += [""] * (self._row + 1 - len(self._lines))
            elif letter == "\r":
                self._column = 0
            elif letter == "\b":
                self._column = max(0, self._column - 1)
            elif letter.isprintable():
                line = self._lines[self._row].ljust(self._column)
                self._lines[self._row] = line[: self._column] + letter + line[self._column + 1 :]
                self._column += 1

    def _move(self, kind: str, words: str) -> None:
        count = int(words) if words.isdigit() else 1
        line = self._lines[self._row]
        if kind == "A":
            self._row = max(0, self._row - count)
        elif kind == "K":
            self._lines[self._row] = "" if words == "2" else line[: self._column]
        elif kind == "J":
            self._lines[self._row :] = [line[: self._column]]
        elif kind in "CD":
            self._column = max(0, self._column + (count if kind == "C" else -count))


class Terminal:
    """A running program, whose controlling terminal this is: Ctrl-C reaches it as a signal."""

    def __init__(self, process: subprocess.Popen[bytes], end: int) -> None:
        self._process, self._end = process, end
        self.printed = ""
        """All that it has printed, with its codes."""

    def lines(self) -> list[str]:
        """Return what the screen shows."""
        screen = Screen()
        screen.print(self.printed)
        return screen.lines()

    def wait(self, pattern: str, timeout_s: float = 60.0) -> list[str]:
        """Wait until the screen shows a line that has the pattern; return the screen."""
        deadline = time.monotonic() + timeout_s
        while not any(re.search(pattern, line) for line in self.lines()):
            assert time.monotonic() < deadline, f"not shown: {pattern}; {self.lines()}"
            assert self._reads(0.2), f"ended without {pattern}: {self.lines()}"
        return self.lines()

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._end, keys.encode())

    def ended(self, timeout_s: float = 30.0) -> int:
        """Wait until the program has ended; return its exit status, negative for a signal."""
        deadline = time.monotonic() + timeout_s
        while self._reads(0.2):
            assert time.monotonic() < deadline, f"it runs on: {self.lines()}"
        return self._process.wait(timeout_s)

    def _reads(self, wait_s: float) -> bool:
        """Read what was printed; return whether more may come."""
        ready, _, _ = select.select([self._end], [], [], wait_s)
        if not ready:
            return True
        try:
            read = os.read(self._end, 65536)
        except OSError:
            # Linux reports the other end's close so.
            return False
        self.printed += read.decode(errors="replace")
        return bool(read)


@contextmanager
def running(argv: Sequence[str], env: Mapping[str, str]) -> Iterator[Terminal]:
    """Run a program on a terminal of its own; it is killed at the end if it still runs."""
    end, its = os.openpty()
    termios.tcsetwinsize(its, (ROWS, COLUMNS))
    # What runs the tests may ignore the signal, as nohup does.
    words = ["setsid", "--ctty", "env", "--default-signal=INT", *argv]
    try:
        with subprocess.Popen(
            words, env={"TERM": "xterm-256color", **env}, stdin=its, stdout=its, stderr=its
        ) as process:
            os.close(its)
            try:
                yield Terminal(process, end)
            finally:
                process.kill()
    finally:
        os.close(end)
