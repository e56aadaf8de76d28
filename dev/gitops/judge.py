"""A program that judges objects as Flux, kubectl and Argo CD do, from the Go module proxy.

dev/gitops/go.mod pins kstatus (of Kubernetes and of Flux) and gopher-lua, the Lua of Argo CD.
A cold build takes half a minute on two cores.
"""

import functools
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dev import cache, golang, steps
from dev.docs import argocd
from dev.steps import Step

MODULE = cache.REPOSITORY / "dev" / "gitops"
_FLAGS = ("-s", "-w")


def path() -> Path:
    """Return where the program lies once it is built."""
    return cache.root() / "bin" / _key() / "judge"


def build_steps() -> list[Step]:
    """Return the step that builds the program, or none."""
    if path().exists():
        return []
    return [Step("building judge", lambda: golang.build("./judge", MODULE, path(), _FLAGS))]


@functools.cache
def _key() -> str:
    return golang.key(MODULE, *_FLAGS)


def judged(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Return kstatus, health and the results of enabled actions of each object."""
    asked = {
        "health": argocd.health(),
        "discovery": argocd.discovery(),
        "actions": {name: argocd.action(name) for name in argocd.ACTIONS},
        "objects": objects,
    }
    done = subprocess.run(
        [str(path())], input=json.dumps(asked), text=True, capture_output=True, check=False
    )
    if done.returncode:
        raise steps.StepFailed(f"judge failed: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
