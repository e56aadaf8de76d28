"""Delete everything that is kept between runs: python3 -m dev.clean."""

import shutil

from dev import cache, steps
from dev.node import cluster
from dev.steps import StepFailed

# The only things that are ours to delete: RLFLEET_CACHE may name a folder that
# holds other things too.
OWNED = (
    "bin",
    "cluster",
    "containerd",
    "images",
    "images.json",
    "locks",
    "logs",
    "venv",
    "volumes",
)


def main() -> None:
    """Delete what is ours in the cache."""
    if cluster.is_up():
        raise StepFailed("the cluster is up and runs from the cache; `make cluster-down` first")
    for name in OWNED:
        shutil.rmtree(cache.root() / name, ignore_errors=True)
        (cache.root() / name).unlink(missing_ok=True)
    steps.say(f"{cache.root()} is clean")


if __name__ == "__main__":
    steps.main(main)
