"""Ctrl-C ends a command as it ends kubectl: by the signal, without words.

So the shell shows 130, and a script that runs the command in a loop ends too.
"""

import signal

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


def end() -> None:
    """End the process by the signal."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)


before_imports()
