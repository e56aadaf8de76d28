"""Both images as archives, built from nothing, so that no layer is of another day.

The worker's stands on vLLM for CPU, the only build of vLLM that the Python index carries with all
it needs; who has GPUs builds Dockerfile.worker on vLLM's own image.
"""

import dataclasses
from pathlib import Path

from dev.images import build, names
from dev.images.names import Image
from dev.release import version

PREFIX = "rlfleet.local"


def make(folder: Path, epoch: int) -> list[Path]:
    """Write both archives; return their paths."""
    number, built = version.current(), set[str]()
    paths = []
    for image, title, tag in (
        (names.operator(), "operator", number),
        (names.worker(names.NEWEST), "worker-cpu", f"{number}-cpu"),
    ):
        kind = title.partition("-")[0]
        own = _of_the_release(image, f"{PREFIX}/{kind}:{tag}")
        path = folder / f"rlfleet-{title}-{number}.oci.tar"
        build.anew(own, path, epoch, built)
        paths.append(path)
    build.forget(built)
    return paths


def _of_the_release(image: Image, name: str) -> Image:
    """Return the image under another name, on bases of other names: the development's stay."""
    base = image.base
    if base is not None:
        kind = base.name.rpartition("/")[2].partition(":")[0]
        base = _of_the_release(base, f"localhost/release-{kind}:{version.current()}")
    return dataclasses.replace(image, name=name, base=base)
