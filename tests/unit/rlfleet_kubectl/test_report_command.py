"""What a user sees while a bundle is made."""

import io
import os

from rlfleet_kubectl.commands.reporting import ShownSteps


def counted(progress: ShownSteps) -> None:
    with progress.step("reading logs", 2):
        progress.advance()
        progress.advance()


def test_a_terminal_shows_how_far_a_step_is() -> None:
    terminal, shown = os.openpty()
    with os.fdopen(terminal, "rb", buffering=0) as read, os.fdopen(shown, "w") as written:
        counted(ShownSteps(written))
        text = ""
        while not text.endswith("\n"):
            # A terminal gives what it has, which may be less than was written.
            text += read.read(4096).decode()

    assert [one.strip() for one in text.split("\r") if one.strip()] == [
        "reading logs ...",
        "reading logs ... 1 of 2",
        "reading logs ... 2 of 2",
        "reading logs ... 2 of 2 done",
    ]


def test_a_pipe_gets_no_steps() -> None:
    written = io.StringIO()
    counted(ShownSteps(written))

    assert not written.getvalue()
