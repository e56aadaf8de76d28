"""Progress of the slow parts: one numbered line per step, with its time.

Work is described as data (a list of `Step`), so that the number of steps is
known before the first one starts and a warm run, where nothing is missing,
prints almost nothing. Lists given to `run` together are lanes: each keeps its
own order, and all run at the same time. A compiler and a download share a
machine well, and a cold start is mostly those two.
"""

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

# A silent minute looks like a hang, in a terminal and in a CI log alike.
HEARTBEAT_S = 30.0


class StepFailed(Exception):  # noqa: N818 - it reads as what happened
    """A step failed; the message says what to do."""


@dataclass(frozen=True)
class Step:
    """One piece of work; what `act` returns is added to the line."""

    title: str
    act: Callable[[], str | None]


def run(*lanes: Sequence[Step]) -> None:
    """Do every step of every lane; the first failure ends all lanes."""
    total = sum(len(lane) for lane in lanes)
    if not total:
        return
    numbers = itertools.count(1)
    stop = threading.Event()

    def walk(lane: Sequence[Step]) -> None:
        for step in lane:
            if stop.is_set():
                return
            try:
                _do(step, f"[{next(numbers):>2}/{total}]")
            except BaseException:
                stop.set()
                raise

    with ThreadPoolExecutor(max_workers=len(lanes)) as pool:
        futures = [pool.submit(walk, lane) for lane in lanes if lane]
    for future in futures:
        future.result()


def _do(step: Step, number: str) -> None:
    started = time.monotonic()
    with _heartbeat(f"{number} {step.title} …"):
        note = step.act()
    took = time.monotonic() - started
    say(f"{number} {step.title} … {took:.0f} s" + (f" ({note})" if note else ""))


@contextmanager
def _heartbeat(line: str) -> Iterator[None]:
    """Repeat the line while the step runs."""
    started = time.monotonic()
    done = threading.Event()

    def beat() -> None:
        while not done.wait(HEARTBEAT_S):
            say(f"{line} {time.monotonic() - started:.0f} s so far")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def say(line: str) -> None:
    """Print and flush, also into a pipe."""
    print(line, flush=True)


def main(command: Callable[[], None]) -> None:
    """Run a command-line entry; a failure is one clear sentence, not a trace."""
    try:
        command()
    except StepFailed as failure:
        sys.exit(f"rlfleet: {failure}")
    except KeyboardInterrupt:
        sys.exit("rlfleet: interrupted; run the same command again to continue")
