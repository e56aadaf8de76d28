"""kubectl and helm: built here for the cluster that is built here, a user's for a user's cluster.

With CLUSTER=existing those on PATH are used, if they are new enough; what is missing is built.
"""

import functools
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from dev import environment
from dev.kubernetes import binaries
from dev.steps import Step, StepFailed


@dataclass(frozen=True)
class Client:
    """A program, the oldest release that will do, and how it tells its own."""

    name: str
    oldest: tuple[int, int]
    why: str
    words: tuple[str, ...]


KUBECTL = Client(
    "kubectl", (1, 29), "the oldest supported Kubernetes", ("version", "--client", "--output=json")
)
HELM = Client("helm", (3, 8), "the first with charts in registries", ("version", "--short"))


def build_steps(wanted: Iterable[str], *, are_users: bool) -> list[Step]:
    """Return what is left to build. `are_users`: those on PATH are taken if there are any."""
    taken = found() if are_users else {}
    missing = [name for name in wanted if name not in taken]
    if are_users and missing and not shutil.which("go"):
        raise StepFailed(
            f"{' and '.join(missing)} not found on PATH; install them, or Go to have them built"
        )
    return binaries.build_steps({name: binaries.CLIENTS[name] for name in missing})


def search_path(*, are_users: bool) -> str:
    """Return the PATH on which both are found."""
    path = environment.search_path()
    if not are_users:
        return f"{binaries.path('kubectl').parent}:{path}"
    # The folder's name is that of a compiler: who has both programs needs none.
    has_both = len(found()) == len(binaries.CLIENTS)
    return path if has_both else f"{path}:{binaries.path('kubectl').parent}"


@functools.cache
def found() -> dict[str, str]:
    """Return where those on PATH are; raises if one is too old."""
    paths = {client: shutil.which(client.name) for client in (KUBECTL, HELM)}
    for client, path in paths.items():
        if path:
            refuse_older(client, path, _said(path, *client.words))
    return {client.name: path for client, path in paths.items() if path}


def refuse_older(client: Client, path: str, said: str) -> None:
    """Raise unless what a program said of its version is new enough."""
    oldest = ".".join(map(str, client.oldest))
    way_out = f"put a newer {client.name} on PATH, or take this one off to have one built by Go"
    release = _release(said)
    if release is None:
        raise StepFailed(f"{path} does not say its version (got {said.strip()[:80]!r}); {way_out}")
    if release < client.oldest:
        named = ".".join(map(str, release))
        raise StepFailed(
            f"{path} is {named}; {client.name} {oldest} or newer is needed, {client.why}; {way_out}"
        )


def _release(said: str) -> tuple[int, int] | None:
    """Return major and minor: kubectl's stand in JSON, helm's first."""
    numbers = re.search(r'(?:^|"gitVersion": ?")v(\d+)\.(\d+)\.', said)
    return (int(numbers[1]), int(numbers[2])) if numbers else None


def _said(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout or done.stderr
