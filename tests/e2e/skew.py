"""Operator and workers of two releases on real vLLM: python -m tests.e2e.skew COMMIT.

As an upgrade meets them: the operator of this tree over workers of an earlier commit, workers of
both in one fleet, and the other way round, as after a rollback of the operator. Each pair makes a
rollout, meets a version that fails its proof, and returns to the one before, under load.
"""

import argparse
import functools
import io
import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dev import cache, steps, target
from dev.demo import stage
from dev.images import build, names
from dev.images.names import Image
from dev.shell import Shell
from dev.steps import Step, StepFailed, say
from tests.e2e.scenario import Fleet, Trainer, is_ready, until
from tests.e2e.test_rollout import OVERFLOWING

NAMESPACE = "rlfleet-skew"
BOOT_S = 1200
KINDS = ("operator", "worker")
_MADE = """
import json, sys
from dev import steps
from dev.images import build, names
ours = {one.file.name.removeprefix("Dockerfile."): one for one in names.ours(names.chosen())}
images = {kind: ours[kind] for kind in sys.argv[1:]}
steps.run(build.build_steps(list(images.values())))
print(json.dumps({kind: image.name for kind, image in images.items()}))
"""
"""Builds images of a tree, without recording them as the ones in use."""


@dataclass(frozen=True)
class Release:
    """A tree, and the images that were made of it."""

    title: str
    tree: Path
    operator: str
    worker: str


def main() -> None:
    """Run both directions; the exit status is 0 if all passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.skew", description=__doc__)
    parser.add_argument("commit", help="the earlier release: a tag or commit of this repository")
    parser.add_argument("--only", choices=("newer", "older"), help="only this operator")
    parser.add_argument("--as-it-is", action="store_true", help="take the images as they are")
    options = parser.parse_args()
    kubeconfig = target.kubeconfig() if options.as_it_is else stage.cluster_and_images()
    operator, worker = (image.name for image in names.ours(names.chosen()))
    newer = Release("this tree", cache.REPOSITORY, operator, worker)
    older = earlier(options.commit)
    shell = Shell(kubeconfig, NAMESPACE, is_quiet=True)
    for title, leading, other in (("newer", newer, older), ("older", older, newer)):
        if options.only in {None, title}:
            _pair(shell, leading, other)
    say("both releases work together")


def earlier(commit: str, *kinds: str) -> Release:
    """Return an earlier release, its tree laid out in the cache and its images made.

    Of which kinds may be named; the others have no name then.
    """
    words = ["git", "archive", "--format=tar", commit]
    said = subprocess.run(words, cwd=cache.REPOSITORY, check=False, capture_output=True)
    if said.returncode:
        raise StepFailed(f"OLD={commit} is no commit of this repository: {said.stderr.decode()}")
    tree = cache.folder("skew", commit.replace("/", "-"))
    with tarfile.open(fileobj=io.BytesIO(said.stdout)) as files:
        files.extractall(tree, filter="data")
    made = subprocess.run(
        [sys.executable, "-c", _MADE, *(kinds or KINDS)],
        cwd=tree,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    images = json.loads(made.stdout.splitlines()[-1])
    steps.run(build.load_steps([Image(name, tree, tree) for name in images.values()]))
    return Release(commit, tree, images.get("operator", ""), images.get("worker", ""))


def _pair(shell: Shell, leading: Release, other: Release) -> None:
    """Have one release's operator lead workers of the other, then of both, then of its own."""
    say(f"\n=== operator of {leading.title}, workers of {other.title}")
    _clear(shell)
    try:
        steps.run(
            [
                Step("installing operator and volume", functools.partial(_install, shell, leading)),
                Step("starting two workers", functools.partial(_start, shell, other)),
                Step("rollout, failed version, rollback", functools.partial(_exercise, shell)),
                Step("upgrading workers", functools.partial(_upgrade, shell, leading)),
                Step("rollout, failed version, rollback", functools.partial(_exercise, shell)),
            ]
        )
    finally:
        _clear(shell)


def _install(shell: Shell, leading: Release) -> None:
    stage.namespace(shell)
    stage.volume(shell)
    stage.scripts(shell)
    stage.checkpoints(shell)
    definition = leading.tree / "crds" / "rlinferencefleets.rlfleet.dev.yaml"
    shell.run("kubectl", "apply", "--server-side", "--force-conflicts", f"--filename={definition}")
    repository, _, tag = leading.operator.rpartition(":")
    shell.run(
        *("helm", "upgrade", "--install", "skew", str(leading.tree / "charts" / "rlfleet")),
        *("--namespace", f"{NAMESPACE}-system", "--create-namespace", "--wait", "--timeout=300s"),
        *(f"--set=namespaces={{{NAMESPACE}}}", "--set=crds.enabled=false", "--set=replicas=1"),
        *(f"--set=image.repository={repository}", f"--set=image.tag={tag}"),
        f"--set=worker.image={leading.worker}",
    )
    stage.client(shell)
    trainer = Trainer(shell)
    trainer.start()
    trainer.write("overflow", "step-1", OVERFLOWING)


def _start(shell: Shell, other: Release) -> str:
    text = (stage.DEMO / "fleet.yaml").read_text()
    named = text.replace("  engine:\n", f"  engine:\n    image: {other.worker}\n")
    shell.kubectl("apply", "-f", "-", stdin=named)
    fleet = Fleet(shell)
    fleet.wait_synced(BOOT_S)
    return _images(fleet)


def _exercise(shell: Shell) -> str:
    """Change the version, meet one that fails, and return, without a lost request."""
    fleet, begun = Fleet(shell), time.monotonic()
    before = fleet.answers()
    with _nothing_lost(fleet):
        fleet.declare("step-1", rollout={"onFailure": "Rollback"})
        fleet.wait_synced()
        after = fleet.answers()
        fleet.declare("overflow")
        status = fleet.wait_phase("RolledBack")
        _demand("ProofFailed" in fleet.wait_stalled()["message"], "the failed proof is reported")
        _demand(status["serving"] == "step-1", "step-1 serves again")
        fleet.declare("step-0")
        fleet.wait_synced()
    _demand(len({tuple(tokens) for tokens in after.values()}) == 1, "workers answer alike")
    _demand(after != before == fleet.answers(), "each version has its own answers")
    return f"{time.monotonic() - begun:.0f} s"


def _upgrade(shell: Shell, leading: Release) -> str:
    """Give the workers the operator's release, one by one; change the version before the last."""
    fleet = Fleet(shell)
    with _nothing_lost(fleet):
        fleet.patch(engine={"image": leading.worker})
        until(lambda: len(_of_pods(fleet)) > 1, BOOT_S, "a fleet of both releases")
        fleet.declare("step-2")
        until(
            lambda: list(_of_pods(fleet)) == [leading.worker] and _are_ready(fleet),
            2 * BOOT_S,
            "workers of one release",
        )
        fleet.wait_synced(BOOT_S)
    fleet.declare("step-0")
    fleet.wait_synced()
    return _images(fleet)


@contextmanager
def _nothing_lost(fleet: Fleet) -> Iterator[None]:
    with fleet.recorded(tokens=32) as histories:
        yield
    (history,) = histories
    _demand(not history.lost, f"no request is lost (lost: {history.lost[:3]})")
    say(f"    {len(history.replies)} requests, none lost")


def _of_pods(fleet: Fleet) -> dict[str, int]:
    """Return how many workers run each image."""
    found: dict[str, int] = {}
    for pod in fleet.pods().values():
        engine = next(one for one in pod["spec"]["containers"] if one["name"] == "engine")
        found[engine["image"]] = found.get(engine["image"], 0) + 1
    return found


def _are_ready(fleet: Fleet) -> bool:
    pods = fleet.pods()
    return len(pods) == fleet.get()["spec"]["replicas"] and all(map(is_ready, pods.values()))


def _images(fleet: Fleet) -> str:
    return ", ".join(f"{count} of {image}" for image, count in _of_pods(fleet).items())


def _demand(is_so: bool, what: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not is_so:
        raise StepFailed(f"skew: expected that {what}")


def _clear(shell: Shell) -> None:
    words = ("--ignore-not-found", "--timeout=300s")
    shell.run("kubectl", "delete", "namespace", NAMESPACE, *words)
    shell.run("helm", "uninstall", "skew", f"--namespace={NAMESPACE}-system", "--ignore-not-found")
    shell.run("kubectl", "delete", "namespace", f"{NAMESPACE}-system", *words)
    shell.run("kubectl", "delete", "pv", stage.volume_name(shell), *words)


if __name__ == "__main__":
    steps.main(main)
