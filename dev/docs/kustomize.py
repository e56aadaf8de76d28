"""The base of deploy/kustomize: the chart as Helm renders it with its default values.

Helm's own labels stay, so that `helm upgrade --install --take-ownership` can take the objects over.
"""

import subprocess
from pathlib import Path

from dev import steps
from dev.kubernetes import binaries
from dev.release import version

ROOT = Path(__file__).resolve().parents[2]
_IMAGES = ("--set=image.repository=operator", f"--set=worker.image=worker:{version.current()}")
"""Names for the overlay to replace: no registry has them."""
_HEAD = "# Generated from charts/rlfleet by `make generate`; do not edit.\n"


def base() -> str:
    """Return all objects of the chart."""
    steps.run(binaries.build_steps({"helm": binaries.CLIENTS["helm"]}))
    argv = [str(binaries.path("helm")), "template", "rlfleet", str(ROOT / "charts" / "rlfleet")]
    argv += ["--namespace", "rlfleet-system", *_IMAGES]
    made = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return _HEAD + made
