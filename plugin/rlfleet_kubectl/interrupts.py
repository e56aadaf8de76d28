"""Ctrl-C ends a command as it ends kubectl: by the signal, without words.

So the shell shows 130, and a script that runs the command in a loop ends too.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator

_IS_HANDLED = signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""A shell has SIGINT ignored in what it runs in the background."""


def before_imports() -> None:
    """Let the signal end the process at once: an import has nothing to clean up."""
    if _IS_HANDLED:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def after_imports() -> None:
    """Let the signal be a KeyboardInterrupt, so that a command ends its kubectl too."""
    if _IS_HANDLED:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait for the block's end. Only the main thread is interrupted."""
    came: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    known = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM) if is_main}
    handled = {one: handler for one, handler in known.items() if callable(handler)}
    try:
        for one in handled:
            signal.signal(one, lambda number, _: came.append(number))
        yield
    finally:
        for one, handler in handled.items():
            signal.signal(one, handler)
    for number in came:
        signal.raise_signal(number)


def end() -> None:
    """End the process by the signal."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)


before_imports()
