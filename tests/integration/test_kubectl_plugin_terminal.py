"""What a person sees of `make plugin`'s file at a terminal, and what shells complete by it."""

import asyncio
import functools
import signal
import subprocess
from pathlib import Path

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


TYPED = [("sta", "status"), ("status --namespace {namespace} q", "qwen"), ("completion z", "zsh")]
"""What is typed after kubectl-rlf, and the word that Tab makes of the last one."""


def keep(user: dict[str, str], name: str, text: str) -> None:
    """Write a file of the user's home."""
    path = Path(user["HOME"], name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


async def test_fish_completes_by_its_script(fleet: Fleet, user: dict[str, str]) -> None:
    await fleet.create(weightVersion="step-1")
    run = functools.partial(
        subprocess.run, env=user, check=True, capture_output=True, text=True, timeout=60
    )
    printed = await asyncio.to_thread(run, ["kubectl", "rlf", "completion", "fish"])
    keep(user, ".config/fish/completions/kubectl-rlf.fish", printed.stdout)

    for typed, word in TYPED:
        line = f"kubectl-rlf {typed.format(namespace=fleet.namespace)}"
        offered = await asyncio.to_thread(run, ["fish", "-c", f"complete --do-complete '{line}'"])
        # A description stands behind a tab.
        assert [one.partition("\t")[0] for one in offered.stdout.splitlines()] == [word]


ZSHRC = """\
PS1='$ '
autoload -Uz compinit && compinit -u
source <(kubectl rlf completion zsh)
"""


async def test_zsh_completes_by_its_script(fleet: Fleet, user: dict[str, str]) -> None:
    await fleet.create(weightVersion="step-1")
    keep(user, ".zshrc", ZSHRC)

    with terminal.running(["zsh", "-i"], user) as shown:
        await asyncio.to_thread(shown.wait, r"^\$")
        for typed, word in TYPED:
            line = f"kubectl-rlf {typed.format(namespace=fleet.namespace)}"
            shown.press(f"{line}\t")
            await asyncio.to_thread(shown.wait, f"{line.rpartition(' ')[0]} {word} ?$")
            shown.press("\x15")
        shown.press("exit\n")
        assert await asyncio.to_thread(shown.ended) == 0
