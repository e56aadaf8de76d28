"""Bring images into a user's cluster that is a container of the same machine: kind, minikube.

Such a cluster pulls from no registry that a user has; it loads archives. Docker or podman build
them where an engine runs, as kind needs one, and else buildah, as for the development cluster.
"""

import functools
import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev import cache, environment, steps, target
from dev.images.names import Image
from dev.shell import Shell
from dev.steps import Step, StepFailed

MINIKUBE = "minikube.k8s.io/name"
ENGINES = ("docker", "podman")


@dataclass(frozen=True)
class Loader:
    """The command that brings an archive into a cluster, and what it lacks."""

    program: str
    words: tuple[str, ...]

    def command(self, archive: Path) -> list[str]:
        """Return the whole command."""
        return [self.program, *self.words, str(archive)]


def loader(nodes: Sequence[dict[str, Any]]) -> Loader:
    """Return how images come into the cluster of these nodes; raises if only by a registry."""
    for node in nodes:
        kind = node["spec"].get("providerID", "").split("/")
        if kind[0] == "kind:":
            return Loader("kind", ("load", "image-archive", f"--name={kind[3]}"))
        if profile := node["metadata"].get("labels", {}).get(MINIKUBE):
            return Loader("minikube", ("image", "load", f"--profile={profile}"))
    raise StepFailed(
        "the cluster is neither kind nor minikube; set IMAGE_PREFIX to the registry and folder "
        "it pulls from"
    )


def load_steps(images: Sequence[Image], build: Callable[[Image, Path], None]) -> list[Step]:
    """Return what brings the images in that no node has; `build` makes an archive by buildah."""
    shell = Shell(target.kubeconfig(), "default", is_quiet=True)
    nodes = json.loads(shell.run("kubectl", "get", "nodes", "--output=json"))["items"]
    found = loader(nodes)
    if not shutil.which(found.program):
        raise StepFailed(f"the cluster is {found.program}'s, and {found.program} is not on PATH")
    lacking = [image for image in images if not is_held(nodes, image.name)]
    make = build
    if engine := _engine():
        demand_base(lacking)
        make = functools.partial(_by_engine, engine)
    return [
        Step(f"loading {image.name}", functools.partial(_load, image, found, make))
        for image in lacking
    ]


def demand_base(images: Sequence[Image]) -> None:
    """Raise if the worker's image would be built on vLLM's own, whose engine needs a GPU."""
    if any(map(_is_worker, images)) and not environment.variable("WORKER_BASE"):
        raise StepFailed(
            "WORKER_BASE is not set, and vLLM's own image needs GPUs; set it to vLLM's image for "
            "CPU (docs/how-to/quick-start.md)"
        )


def _is_worker(image: Image) -> bool:
    return image.file.name == "Dockerfile.worker"


def is_held(nodes: Sequence[dict[str, Any]], name: str) -> bool:
    """Return whether every node has the image; a kubelet lists its largest fifty."""
    names = [
        {tag for image in node["status"].get("images", ()) for tag in image.get("names") or ()}
        for node in nodes
    ]
    return all(name in held for held in names)


def _load(image: Image, found: Loader, make: Callable[[Image, Path], None]) -> None:
    archive = cache.folder("archives") / f"{image.file.name}.tar"
    make(image, archive)
    try:
        cache.call(found.command(archive), f"load-{found.program}")
    finally:
        archive.unlink()


def _engine() -> str | None:
    """Return the container engine that runs, if one does; a client alone is none."""
    for name in ENGINES:
        if shutil.which(name):
            asked = subprocess.run([name, "info"], capture_output=True, check=False)
            if not asked.returncode:
                return name
    return None


def _by_engine(engine: str, image: Image, archive: Path) -> None:
    words = engine_command(engine, image)
    steps.say(f"$ {' '.join(words)}")
    cache.call(words, f"image-{engine}")
    cache.call([engine, "save", "--output", str(archive), image.name], f"image-{engine}")


def engine_command(engine: str, image: Image) -> list[str]:
    """Return what builds an image by a container engine; WORKER_BASE replaces vLLM's image."""
    base = environment.variable("WORKER_BASE")
    chosen = [f"--build-arg=BASE={base}"] if _is_worker(image) and base else []
    return [engine, "build", *chosen, f"--file={image.file.name}", f"--tag={image.name}", "."]
