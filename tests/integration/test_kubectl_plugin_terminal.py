"""What a person sees of `make plugin`'s file at a terminal."""

import asyncio
import signal

import pytest

from tests.hollow import HollowNode
from tests.integration import terminal
from tests.integration.conftest import Fleet, Operator
from tests.integration.terminal import COLOUR

pytestmark = pytest.mark.integration


async def test_a_watched_status_is_drawn_in_place_until_ctrl_c(
    operator: Operator, node: HollowNode, fleet: Fleet, user: dict[str, str]
) -> None:
    await fleet.create(weightVersion="step-1")
    await fleet.synced()

    argv = ["kubectl", "rlf", "status", "qwen", "--watch", f"--namespace={fleet.namespace}"]
    with terminal.running(argv, user) as shown:
        first = await asyncio.to_thread(shown.wait, "serving step-1$")
        await fleet.patch(weightVersion="step-2")
        await asyncio.to_thread(shown.wait, "serving step-2$")
        last = await asyncio.to_thread(shown.wait, "Synced")
        shown.press("\x03")
        status = await asyncio.to_thread(shown.ended)

    assert status == -signal.SIGINT
    assert heads(first) == heads(last) == 1
    assert [line for line in last if "step-1" in line and "step-2" not in line] == []
    assert COLOUR.search(shown.printed)
    # The terminal is left as it was: its cursor is there, on a line of its own.
    assert shown.printed.rfind("\x1b[?25h") > shown.printed.rfind("\x1b[?25l")
    assert "Traceback" not in shown.printed


def heads(lines: list[str]) -> int:
    """Return how many trees stand on a screen."""
    return sum(line.startswith("qwen ") for line in lines)


async def test_a_terminal_without_colours_gets_none(fleet: Fleet, user: dict[str, str]) -> None:
    await fleet.create(weightVersion="step-1")

    argv = ["kubectl", "rlf", "status", "qwen", "--watch", f"--namespace={fleet.namespace}"]
    with terminal.running(argv, {**user, "NO_COLOR": "1"}) as shown:
        await asyncio.to_thread(shown.wait, "qwen .* Behind")
        shown.press("\x03")
        assert await asyncio.to_thread(shown.ended) == -signal.SIGINT

    assert not COLOUR.search(shown.printed)
