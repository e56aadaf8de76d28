"""What our images are called: the tag is the hash of everything that goes in.

So a pod that names the current tag runs the current code, and an image that is
already in the node's store under its name needs neither building nor loading.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from dev import cache, target

HERE = Path(__file__).parent
DEBIAN_RELEASE = "bookworm"
# Beside Python: vLLM needs libnuma and is advised tcmalloc; cuda_absent.py needs binutils.
DEBIAN_PACKAGES = (
    "python3",
    "python3-venv",
    "ca-certificates",
    "libnuma1",
    "libtcmalloc-minimal4",
    "binutils",
)


@dataclass(frozen=True)
class Image:
    """One image, what it is built from and on."""

    name: str
    file: Path
    context: Path
    base: "Image | None" = None


def debian() -> Image:
    """Return the root of the images that are built here."""
    tag = cache.digest(HERE / "Containerfile.debian", DEBIAN_RELEASE, *DEBIAN_PACKAGES)
    return Image(f"localhost/debian:{tag}", HERE / "Containerfile.debian", HERE)


def vllm_cpu() -> Image:
    """Return the base of the worker."""
    file = HERE / "Containerfile.vllm-cpu"
    tag = cache.digest(file, HERE / "vllm-cpu.lock", HERE / "cuda_absent.py", debian().name)
    return Image(f"localhost/vllm-cpu:{tag}", file, HERE, debian())


def operator() -> Image:
    """Return the operator's image."""
    sources = ("requirements/operator.lock", "operator", "sidecar/rlfleet_contract")
    return _ours("operator", debian(), *sources)


def worker() -> Image:
    """Return the image of engine and sidecar."""
    return _ours("worker", vllm_cpu(), "sidecar")


def _ours(name: str, base: Image, *sources: str) -> Image:
    file = cache.REPOSITORY / f"Dockerfile.{name}"
    tag = cache.digest(file, base.name, *(cache.REPOSITORY / source for source in sources))
    return Image(f"{target.image_prefix()}/{name}:{tag}", file, cache.REPOSITORY, base)


def ours() -> list[Image]:
    """Return the images of the code as it is now."""
    return [operator(), worker()]


def record(images: list[Image]) -> None:
    """Write the names down for whoever deploys them."""
    names = {image.file.name.removeprefix("Dockerfile."): image.name for image in images}
    (cache.root() / "images.json").write_text(json.dumps(names, indent=1) + "\n")


def recorded() -> dict[str, str]:
    """Return the names of the images that were made last: {"operator": …, "worker": …}."""
    names: dict[str, str] = json.loads((cache.root() / "images.json").read_text())
    return names
