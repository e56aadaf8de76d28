"""`make plugin`'s file, as a user runs it: against a real API server, an operator, hollow workers.

It runs without our packages on its path, so that what it lacks shows.
"""

import asyncio
import functools
import json
import subprocess
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from dev import plugin
from dev.kubernetes import apiserver
from rlfleet_kubectl.commands.changing import Flags, apply
from rlfleet_kubectl.commands.shell import Shell
from rlfleet_kubectl.core import changes
from rlfleet_kubectl.errors import Exit, PluginError
from rlfleet_kubectl.kubectl import Kubectl
from tests.hollow import HollowNode
from tests.integration.conftest import Fleet, Operator, Run, kubectl, until

pytestmark = pytest.mark.integration

FLAGS = Flags(dry_run=False, wait=False, timeout=60.0)
CANARY = {"strategy": "Canary", "canary": {"count": 1, "promote": "Manual"}}


async def test_a_user_sets_versions_and_sees_what_became_of_them(
    operator: Operator, node: HollowNode, fleet: Fleet, rlf: Run
) -> None:
    await fleet.create(weightVersion="step-1")
    await rlf("wait", "qwen", "--timeout=180s")

    done = await rlf("set-version", "qwen", "step-2", "--wait", "--timeout=180s")
    assert "spec.weightVersion: step-1 -> step-2" in done.stdout
    assert "qwen serves step-2: 2 of 2 workers proved step-2" in done.stdout
    assert (await fleet.status())["serving"] == "step-2"

    listed = (await rlf("get")).stdout.splitlines()
    assert listed[0].split() == ["NAME", "READY", "TARGET", "SERVING", "STATE", "STATUS", "AGE"]
    assert listed[1].split()[:5] == ["qwen", "2/2", "step-2", "step-2", "Synced"]
    tree = (await rlf("status", "qwen")).stdout
    assert "step-1" in tree
    assert "2 of 2 workers\n" in tree
    assert "\x1b" not in tree
    assert json.loads((await rlf("status", "qwen", "-o", "json")).stdout)["state"] == "Synced"
    wide = (await rlf("workers", "qwen", "-o", "wide")).stdout
    assert "Installed,Parameters,Probe" in wide
    await rlf("rollback", "qwen", "--wait", "--timeout=180s")
    past = (await rlf("history", "qwen")).stdout.splitlines()
    assert [line.split()[1:4] for line in past[1:]] == [
        ["step-2", "step-1", "Completed"],
        ["step-1", "step-2", "Completed"],
        ["-", "step-1", "Completed"],
    ]


async def test_the_exit_status_says_how_a_wait_ended(
    operator: Operator, node: HollowNode, fleet: Fleet, rlf: Run
) -> None:
    await fleet.create(weightVersion="step-1", rollout={"timeouts": {"prepareSeconds": 15}})
    await rlf("wait", "qwen", "--timeout=180s")

    stalled = await rlf("set-version", "qwen", "step-9", "--wait", status=Exit.STALLED)
    assert "stalled: VersionNotFound: " in stalled.stderr
    assert "do: mount or write the directory" in (await rlf("status", "qwen")).stdout
    await rlf("abort", "qwen", "--wait", "--timeout=180s")
    await rlf("pause", "qwen")
    await rlf("set-version", "qwen", "step-3")
    await until(lambda: is_at(fleet, "step-3", "Paused"), describe=fleet.describe)
    late = await rlf("wait", "qwen", "--timeout=3s", status=Exit.TIMED_OUT)
    assert "not synced within 3 s: Paused: " in late.stderr
    other = await rlf("wait", "qwen", "--version=step-7", status=Exit.SUPERSEDED)
    assert "spec.weightVersion is step-3, not step-7" in other.stderr
    await rlf("resume", "qwen", "--wait", "--timeout=180s")
    await rlf("wait", "other", status=Exit.FAILED)
    await rlf("wait", status=Exit.USAGE)
    assert (await fleet.status())["serving"] == "step-3"


async def is_at(fleet: Fleet, version: str, phase: str) -> bool:
    rollout = (await fleet.status())["rollout"]
    return bool((rollout["to"], rollout["phase"]) == (version, phase))


async def test_a_canary_is_promoted_and_a_rollout_retried(
    operator: Operator, node: HollowNode, fleet: Fleet, rlf: Run
) -> None:
    await fleet.create(weightVersion="step-1", rollout=CANARY)
    await rlf("wait", "qwen", "--timeout=180s")
    await rlf("set-version", "qwen", "step-2")
    await until(lambda: is_at(fleet, "step-2", "CanaryHold"), describe=fleet.describe)

    await rlf("promote", "qwen", "--wait", "--timeout=180s")
    again = await rlf("retry", "qwen", "--id=again", "--wait", "--timeout=180s")

    assert "spec.rollout.restartId: none -> again" in again.stdout
    status = await fleet.status()
    assert (status["serving"], status["rollout"]["reason"]) == ("step-2", "Restart")


async def test_a_dry_run_and_a_denied_user_change_nothing(fleet: Fleet, rlf: Run) -> None:
    await fleet.create(weightVersion="step-1")

    dry = await rlf("set-version", "qwen", "step-2", "--dry-run")
    assert "(dry run)" in dry.stdout
    same = await rlf("set-version", "qwen", "step-1")
    assert same.stdout == "qwen is unchanged: its spec says so already\n"
    denied = await rlf("set-version", "qwen", "step-2", "--as=eve", status=Exit.FAILED)
    assert 'User "eve" cannot get resource' in denied.stderr
    invalid = await rlf("set-version", "qwen", "../x", status=Exit.FAILED)
    assert "must be one directory name" in invalid.stderr
    assert (await fleet.get())["spec"]["weightVersion"] == "step-1"


async def test_a_spec_that_another_client_changed_is_not_patched(
    plane: apiserver.ControlPlane, fleet: Fleet
) -> None:
    await fleet.create(weightVersion="step-1")
    mine = Kubectl((f"--kubeconfig={plane.kubeconfig}", f"--namespace={fleet.namespace}"))
    read = await asyncio.to_thread(mine.fleet, "qwen")
    change = changes.set_version(read, "step-2", changes.Described())
    await fleet.patch(weightVersion="step-3")

    shell = Shell(mine, Console())
    with pytest.raises(PluginError, match=r"its spec \(generation 1, now 2\)"):
        await asyncio.to_thread(apply, shell, read, change, FLAGS)
    assert (await fleet.get())["spec"]["weightVersion"] == "step-3"


async def test_a_write_of_status_makes_no_patch_fail(
    plane: apiserver.ControlPlane, fleet: Fleet
) -> None:
    await fleet.create(weightVersion="step-1")
    mine = Kubectl((f"--kubeconfig={plane.kubeconfig}", f"--namespace={fleet.namespace}"))
    read = await asyncio.to_thread(mine.fleet, "qwen")
    words = ("patch", "rlf", "qwen", "--subresource=status", "--type=merge")
    status = '{"status":{"summary":"changed"}}'
    kubectl(plane, f"--namespace={fleet.namespace}", *words, "-p", status)

    change = changes.pause(read, is_paused=True)
    assert change is not None
    after = await asyncio.to_thread(mine.patch, "qwen", changes.operations(read, change))
    assert after.spec_at("rollout.paused") is True


async def test_kubectl_completes_commands_and_fleets(
    plane: apiserver.ControlPlane, fleet: Fleet, rlf: Run
) -> None:
    await fleet.create(weightVersion="step-1")

    commands = await rlf("rlf", "set", verb="__complete")
    space = f"--namespace={fleet.namespace}"
    fleets = await rlf("rlf", "status", space, "q", verb="__complete")

    assert commands.stdout.splitlines()[0].startswith("set-version\t")
    assert fleets.stdout.splitlines()[:2] == ["qwen", ":4"]
    for words in (("get", space, "q"), ("workers", space, "q")):
        assert (await rlf("rlf", *words, verb="__complete")).stdout.startswith("qwen\n")
    spaces = await rlf("rlf", "get", "-n", fleet.namespace[:4], verb="__complete")
    assert fleet.namespace in spaces.stdout.splitlines()


async def test_get_writes_yaml_as_kubectl_does(fleet: Fleet, rlf: Run) -> None:
    await fleet.create(weightVersion="step-1")

    one = yaml.safe_load((await rlf("get", "qwen", "-o", "yaml")).stdout)
    assert one["spec"]["weightVersion"] == "step-1"
    every = yaml.safe_load((await rlf("get", "-o", "yaml")).stdout)
    assert [item["metadata"]["name"] for item in every["items"]] == ["qwen"]


async def test_get_selects_fleets_by_label(
    plane: apiserver.ControlPlane, fleet: Fleet, rlf: Run
) -> None:
    await fleet.create(weightVersion="step-1")
    kubectl(plane, "label", "rlf", "qwen", "team=search", f"--namespace={fleet.namespace}")

    listed = (await rlf("get", "-l", "team=search")).stdout.splitlines()
    assert [line.split()[0] for line in listed] == ["NAME", "qwen"]
    other = "team notin (search)"
    assert "no fleets found; other" in (await rlf("get", "--selector", other)).stdout
    nowhere = (await rlf("get", "-A", "-l", f"team={fleet.namespace}")).stdout
    assert nowhere == "no fleets found\n"
    assert yaml.safe_load((await rlf("get", "-l", other, "-o", "yaml")).stdout)["items"] == []
    assert "leave one out" in (await rlf("get", "qwen", "-l", "a=b", status=1)).stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_each_shell_has_a_script(rlf: Run, shell: str) -> None:
    assert "_KUBECTL_RLF_COMPLETE" in (await rlf("completion", shell)).stdout


async def test_bash_completes_by_its_script(fleet: Fleet, user: dict[str, str]) -> None:
    await fleet.create(weightVersion="step-1")
    words = f"kubectl-rlf --namespace {fleet.namespace} status q"
    typed = f"COMP_WORDS=({words}); COMP_CWORD=4; _kubectl_rlf_completion kubectl-rlf"
    script = f'source <(kubectl-rlf completion bash); {typed}; echo "${{COMPREPLY[@]}}"'
    run = functools.partial(subprocess.run, check=True, capture_output=True, text=True)
    done = await asyncio.to_thread(run, ["bash", "-c", script], env=user)
    assert done.stdout == "qwen\n"


async def test_a_reason_is_explained(rlf: Run) -> None:
    assert "do: mount or write" in (await rlf("explain", "VersionNotFound")).stdout


def test_the_file_is_made_of_pure_python_and_always_the_same(program: Path) -> None:
    again = plugin.write(program.with_name("again"))

    assert again.read_bytes() == program.read_bytes()
    page, others = {".html", ".css", ".js", ".svg"}, {".json", ".txt", ".rst", ""}
    assert {Path(name).suffix for name in plugin.contents()} <= {".py"} | page | others
