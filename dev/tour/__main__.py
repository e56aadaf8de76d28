"""Take the tour of docs/tour.md and write down what was seen: python -m dev.tour [COMMIT].

It runs each command of dev/tour/script.md by bash on the cluster, installs the chart and plugin
that `make release` builds, and takes pictures of the dashboard. The first command that fails ends
it, and docs/tour.md stays as it was. The operator is upgraded from that of COMMIT, by default the
one before the last change of its image.
"""

import argparse
import json
import os
import shutil
import string
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

from dev import cache, plugin, steps, target
from dev.demo import stage
from dev.images import names
from dev.kubernetes import binaries
from dev.python import packages
from dev.release import chart
from dev.shell import Shell
from dev.steps import StepFailed, say
from dev.tour import script
from dev.tour.pictures import Camera, camera
from tests.e2e import skew
from tests.e2e.skew import Release

NAMESPACE = "rlfleet-tour"
HERE = Path(__file__).parent
PAGE = cache.REPOSITORY / "docs" / "tour.md"
PICTURES = cache.REPOSITORY / "docs" / "assets"
BUILD = cache.REPOSITORY / "build" / "tour"
EARLIER = BUILD / "earlier"
_LIMIT_S = 1200


class Tour:
    """One walk through the script."""

    def __init__(self, shell: Shell, env: dict[str, str], see: Callable[[], Camera]) -> None:
        self._shell = shell
        self._env = env
        self._see = see
        self._traffic: subprocess.Popen[str] | None = None

    @cached_property
    def _camera(self) -> Camera:
        """Opened late: without a definition of fleets there is no dashboard."""
        return self._see()

    def lines(self, part: script.Part) -> list[str]:
        """Do what a part says; return the lines of the page."""
        match part:
            case script.Text(line):
                return [line]
            case script.Command(line):
                return script.shown(line, self._run(line))
            case script.Picture():
                self._camera.take(part, PICTURES / f"tour-{part.name}.png")
                return [f"![{part.caption}](assets/tour-{part.name}.png)"]
            case script.Requests(is_begin=True):
                words = ("exec", "-i", "client", "--", "python3", "/demo/traffic.py")
                self._traffic = self._shell.start(*words, "http://qwen:8000")
                return []
            case script.Requests():
                return [self._counted()]

    def _run(self, line: str) -> str:
        say(f"$ {line}")
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=cache.REPOSITORY,
            env=self._env,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_LIMIT_S,
            check=False,
        )
        say(done.stdout.rstrip())
        if done.returncode:
            raise StepFailed(f"`{line}` ended with {done.returncode}")
        return done.stdout

    def _counted(self) -> str:
        if self._traffic is None:
            raise StepFailed("script.md ends requests that it has not begun")
        printed, self._traffic = self._traffic.communicate(input="", timeout=300)[0], None
        tally = json.loads(printed.strip().splitlines()[-1])
        if not tally["sent"] or tally["lost"]:
            raise StepFailed(f"requests were lost, expected none: {tally}")
        slowest = tally["slowest_s"]
        return f"{tally['sent']} requests were sent, none was lost; the slowest took {slowest} s."


def main() -> None:
    """Take it."""
    parser = argparse.ArgumentParser(prog="python -m dev.tour")
    parser.add_argument("commit", nargs="?", help="the operator's before the upgrade")
    commit = parser.parse_args().commit or _changed_before()
    steps.run(packages.steps(packages.BROWSER))
    shell = Shell(stage.cluster_and_images(), NAMESPACE)
    earlier = skew.earlier(commit, "operator")
    _clear(shell)
    stage.remove_operator(shell)
    # That of an operator that was uninstalled would have the first look find no leader.
    lease = ("delete", "lease", stage.RELEASE, "--ignore-not-found")
    shell.run("kubectl", "-n", stage.OPERATOR_NAMESPACE, *lease)
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    _prepare(shell)
    shell.run("helm", "package", str(earlier.tree / "charts/rlfleet"), f"--destination={EARLIER}")
    env = _environment(shell)
    with ExitStack() as running:
        running.callback(_clear, shell)
        tour = Tour(shell, env, lambda: running.enter_context(camera(env)))
        lines: list[str] = []
        for part in script.parts(_filled((HERE / "script.md").read_text(), earlier)):
            lines += tour.lines(part)
    PAGE.write_text(script.page(lines))
    say(f"Written: {PAGE.relative_to(cache.REPOSITORY)}")


def _clear(shell: Shell) -> None:
    """Delete what the tour made; a volume whose claim has gone serves no other."""
    shell.run("kubectl", "delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s")
    shell.run("kubectl", "delete", "pv", stage.volume_name(shell), "--ignore-not-found")
    # A trainer begins with an empty volume.
    shutil.rmtree(cache.root() / "volumes" / NAMESPACE, ignore_errors=True)


def _prepare(shell: Shell) -> None:
    """Bring the namespace to where a user of a cluster begins: a volume, a trainer, a client."""
    stage.namespace(shell)
    stage.volume(shell)
    stage.scripts(shell)
    stage.client(shell)
    text = (HERE / "trainer.yaml").read_text()
    filled = string.Template(text).substitute(WORKER_IMAGE=names.recorded()["worker"])
    shell.kubectl("apply", "-f", "-", stdin=filled)
    shell.kubectl("wait", "--for=condition=Ready", "pod/trainer", "--timeout=120s")
    plugin.write(BUILD / plugin.NAME)
    chart.make(BUILD, str(binaries.path("helm")), 0)


def _environment(shell: Shell) -> dict[str, str]:
    """Return a user's: kubectl means the tour's namespace, and finds the plugin."""
    own = BUILD / "kubeconfig"
    shutil.copyfile(target.kubeconfig(), own)
    env = shell.environment()
    env |= {"KUBECONFIG": str(own), "PATH": os.pathsep.join([str(BUILD), env["PATH"]])}
    words = ["kubectl", "config", "set-context", "--current", f"--namespace={NAMESPACE}"]
    subprocess.run(words, env=env, check=True, capture_output=True)
    return env


def _changed_before() -> str:
    """Return the commit before the last one that changed what the operator's image is made of."""
    found = _git("log", "--max-count=2", "--format=%H", "--", *names.OPERATOR_SOURCES).split()
    if len(found) < 2:  # noqa: PLR2004 - the last and the one before
        raise StepFailed("git has no earlier operator here; name its commit: make tour OLD=COMMIT")
    return found[1]


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=cache.REPOSITORY, check=False, capture_output=True, text=True
    )
    return done.stdout.strip()


def _filled(page: str, earlier: Release) -> str:
    """Name the charts and the images, where the script leaves them open."""
    repository, _, tag = names.recorded()["operator"].rpartition(":")
    package, before = (next(folder.glob("*.tgz")) for folder in (BUILD, EARLIER))
    values = {
        "EARLIER": _git("rev-parse", "--short=8", earlier.title),
        "EARLIER_CHART": str(before.relative_to(cache.REPOSITORY)),
        "EARLIER_TAG": earlier.operator.rpartition(":")[2],
        "CHART": str(package.relative_to(cache.REPOSITORY)),
        "OPERATOR": repository,
        "OPERATOR_TAG": tag,
        "WORKER": names.recorded()["worker"],
    }
    return string.Template(page).safe_substitute(values)


if __name__ == "__main__":
    steps.main(main)
