"""The commands as a user types them: help, examples, completion, what reaches kubectl."""

import itertools
import os
import shlex
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from rlfleet_kubectl.cli import rlf
from rlfleet_kubectl.commands import completing
from rlfleet_kubectl.commands.changing import seconds, step
from rlfleet_kubectl.commands.shell import ShellCommand, shell_of
from rlfleet_kubectl.kubectl import objects

COMMANDS = {name: made for name, made in rlf.commands.items() if isinstance(made, ShellCommand)}
EXAMPLES = [(name, example) for name, made in COMMANDS.items() for example in made.examples]


def test_every_command_has_examples_and_a_help() -> None:
    assert set(COMMANDS) == set(rlf.commands)
    assert [name for name, made in COMMANDS.items() if not made.examples or not made.help] == []


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
def test_every_example_is_in_the_help_and_can_be_parsed(name: str, example: str) -> None:
    shown = CliRunner().invoke(rlf, [name, "--help"]).output
    assert f"  {example}\n" in shown
    if "kubectl rlf " not in example:
        return
    typed = example.partition("kubectl rlf ")[2].rstrip(")")
    words = itertools.takewhile(lambda word: word not in {"|", ">"}, shlex.split(typed))
    verb, *rest = words
    assert verb == name
    COMMANDS[name].make_context(name, list(rest))


def test_a_flag_of_the_connection_stands_before_or_after_the_command() -> None:
    parent = rlf.make_context("rlf", ["-n", "rl", "--context", "here", "status"])
    child = COMMANDS["status"].make_context("status", ["qwen", "-n", "other"], parent=parent)

    assert set(shell_of(child).kubectl.flags) == {"--namespace=other", "--context=here"}


@pytest.mark.parametrize(
    ("written", "expected"), [("90", 90.0), ("90s", 90.0), ("1.5m", 90.0), ("2h", 7200.0)]
)
def test_a_duration_is_written_as_for_kubectl(written: str, expected: float) -> None:
    assert seconds(written) == expected


@pytest.mark.parametrize("written", ["", "m", "5d", "ten", "-5s", "nan", "infh", "."])
def test_what_is_no_duration_is_rejected(written: str) -> None:
    with pytest.raises(click.BadParameter, match="write 90s, 10m or 1h"):
        seconds(written)


def test_a_step_is_a_number_or_none() -> None:
    assert (step("7"), step("none")) == (7, -1)
    with pytest.raises(click.BadParameter, match="from 0, or none"):
        step("-7")


@pytest.mark.parametrize(
    "words", [["set-version", "qwen"], ["set-version", "qwen", "a", "--unset"]]
)
def test_a_version_is_named_or_unset(words: list[str]) -> None:
    done = CliRunner().invoke(rlf, words)

    assert done.exit_code == 2
    assert "name a VERSION or --unset, and not both" in done.output


def test_kubectl_is_answered_with_words_and_that_no_files_follow() -> None:
    status, end = completing.for_kubectl(rlf, ["stat"])

    assert status.startswith("status\tShow a fleet as a tree")
    assert end == ":4"
    assert completing.for_kubectl(rlf, ["completion", "z"]) == ["zsh", ":4"]


@pytest.mark.parametrize(
    "words", [["report", "--file"], ["plan", "qwen", "-f"], ["get", "--kubeconfig"]]
)
def test_kubectl_offers_files_where_a_path_belongs(words: list[str]) -> None:
    assert completing.for_kubectl(rlf, [*words, "/etc/ho"]) == [":0"]


def test_reasons_are_completed() -> None:
    assert completing.for_kubectl(rlf, ["explain", "VersionNotF"]) == ["VersionNotFound", ":4"]


def test_objects_that_come_one_after_another_are_read_one_by_one() -> None:
    text = '{\n    "a": {\n        "b": 1\n    }\n}\n{\n    "a": 2\n}\n{\n    "cut'

    assert list(objects(text.splitlines(keepends=True))) == [{"a": {"b": 1}}, {"a": 2}]


@pytest.mark.parametrize("words", [["--help"], ["no-command"]])
def test_a_command_whose_reader_is_gone_does_not_succeed(words: list[str]) -> None:
    """As with `2>&1 | head`: a script must not take a wait or an error for done."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        command = [sys.executable, "-m", "rlfleet_kubectl", *words]
        done = subprocess.run(
            command,
            env={"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"},
            stdout=write_end,
            stderr=write_end,
            check=False,
        )
    finally:
        os.close(write_end)

    assert done.returncode == 1
