"""Build our two images without a container engine or a registry, and load them.

buildah runs the real Dockerfiles on bases that are made here: a Debian root file
system and, on it, vLLM for CPU. A layer that the node already has does not cross.
"""

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

from dev import cache, steps, target
from dev.images import archive, loading, names, pip_settings
from dev.images.names import Image
from dev.node import cluster, store
from dev.python import packages
from dev.steps import Step

FORGET_HOST = 'rm "$1/etc/hostname" "$1/etc/resolv.conf"'
"""mmdebstrap's hook: it copies both files of the machine that builds into the root."""


def make() -> None:
    """Build and load, or say how to build and push for a cluster that is not ours."""
    cache.folder()
    # Computed once, so that an edit of the sources during the build changes no tag.
    images = names.ours(names.chosen())
    if target.is_existing() and target.has_registry():
        for image in images:
            steps.say(" ".join(loading.engine_command("docker", image)))
            steps.say(f"docker push {image.name}")
    elif target.is_existing():
        target.ensure()
        steps.run(loading.load_steps(images, archived))
    else:
        steps.run(packages.steps(packages.IMAGES))
        target.ensure(build_steps(images))
        steps.run(load_steps(images))
        steps.run(forget_steps(names.of_all_releases()))
    names.record(images)
    steps.say("\n".join(image.name for image in images))


def build_steps(images: list[Image]) -> list[Step]:
    """Return what is left to build, bases included; needs no cluster."""
    known, loaded = _built(), store.names()
    wanted = [image for image in images if image.name not in loaded | known]
    needed = {
        image.name: image for one in wanted for image in _lineage(one) if image.name not in known
    }
    return [
        Step(f"building {name}", functools.partial(_build, image)) for name, image in needed.items()
    ]


def load_steps(images: list[Image]) -> list[Step]:
    """Return what is left to load into the node that is up, bases first."""
    loaded = store.names()
    missing = {
        one.name: one for image in images if image.name not in loaded for one in _lineage(image)
    }
    return [
        Step(f"loading {name}", functools.partial(_load, image))
        for name, image in missing.items()
        if name not in loaded
    ]


def forget_steps(images: list[Image]) -> list[Step]:
    """Return the step that frees gigabytes after a base was replaced, if one was.

    Images of our code on the current base are small and stay: a pod, or a run of
    another branch, may still want them.
    """
    current = {one.name for image in images for one in _lineage(image)}
    kinds = {name.rpartition(":")[0] for name in current}
    bases = {image.base.name.rpartition(":")[0] for image in images if image.base}
    replaced = {
        name for name in store.names() | _built() if name.rpartition(":")[0] in kinds
    } - current
    if not any(name.rpartition(":")[0] in bases for name in replaced):
        return []
    return [Step("forgetting replaced images", functools.partial(_forget, replaced))]


def _forget(replaced: set[str]) -> None:
    images = "jsonpath={.items[*].spec.containers[*].image}"
    used = set(cluster.kubectl("get", "pods", "--all-namespaces", f"--output={images}").split())
    store.remove(*sorted(replaced & store.names() - used))
    with cache.lock("buildah"):
        if built := sorted(replaced & _built()):
            _buildah("forget", "rmi", "--force", *built)
        _buildah("forget", "rmi", "--prune", "--force")


def _lineage(image: Image) -> list[Image]:
    """Return the image and all it stands on, the lowest first."""
    return [*(_lineage(image.base) if image.base else []), image]


def _build(image: Image, *more: str, epoch: int | None = None) -> None:
    with cache.lock("buildah"), tempfile.TemporaryDirectory(dir=cache.folder("images")) as scratch:
        # What an interrupted build has left.
        _buildah("rm", "rm", "--all")
        flags = ["--isolation=chroot", "--network=host", "--pull-never", "--format=oci", *more]
        # Layers are kept for the next build, so a change of our code reinstalls nothing.
        flags += ["--layers", f"--tag={image.name}", f"--file={image.file}"]
        context = str(image.context)
        if image.base:
            arguments = (f"BASE={image.base.name}", *image.arguments)
            flags += [*(f"--build-arg={one}" for one in arguments), *pip_settings.mounts()]
        else:
            context = scratch
            _make_debian(Path(scratch, "debian.tar"), epoch)
        _buildah(image.file.name.rpartition(".")[2], "bud", *flags, context)


def _make_debian(root: Path, epoch: int | None) -> None:
    include = f"--include={','.join(names.DEBIAN_PACKAGES)}"
    hook = f"--customize-hook={FORGET_HOST}"
    argv = ["mmdebstrap", "--variant=minbase", include, hook, names.DEBIAN_RELEASE, str(root)]
    env = {"SOURCE_DATE_EPOCH": str(epoch)} if epoch is not None else {}
    cache.call(argv, "image-mmdebstrap", env=env)


def _load(image: Image) -> None:
    """Load an image; what the node has already does not cross.

    Uncompressed: a layer's digest is then that of its content, by which buildah knows it too.
    Into a plain folder: into an OCI layout buildah compresses whatever it is told.
    """
    with tempfile.TemporaryDirectory(dir=cache.folder("images")) as scratch:
        flags = ("--disable-compression", "--format=oci")
        _buildah("push", "push", *flags, image.name, f"dir:{scratch}")
        store.load(image.name, Path(scratch, "manifest.json"), Path(scratch))


def archived(image: Image, path: Path) -> None:
    """Write an image as an archive, built if it is missing."""
    steps.run(packages.steps(packages.IMAGES))
    for one in _lineage(image):
        if one.name not in _built():
            _build(one)
    _pack(image, path)


def _pack(image: Image, path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache.folder("images")) as scratch:
        _buildah("push", "push", image.name, f"oci:{scratch}")
        archive.pack(Path(scratch), image.name, path)


def anew(image: Image, path: Path, epoch: int, built: set[str]) -> None:
    """Write an image as an archive, it and its bases built from nothing, each file of one time.

    `built` has the names of those that this run has built, and gets them.
    """
    steps.run(packages.steps(packages.IMAGES))
    for one in _lineage(image):
        if one.name not in built:
            _build(one, "--no-cache", f"--timestamp={epoch}", epoch=epoch)
            built.add(one.name)
    _pack(image, path)


def forget(built: set[str]) -> None:
    """Free the gigabytes of images that are archives now, and of their bases."""
    with cache.lock("buildah"):
        _buildah("forget", "rmi", "--force", *sorted(built))


def _built() -> set[str]:
    if not shutil.which("buildah"):
        return set()
    return set(_output("images", "--format={{.Name}}:{{.Tag}}", "--noheading").split())


def _buildah(log: str, *words: str) -> None:
    cache.call([*_own_buildah(), *words], f"image-{log}")


def _output(*words: str) -> str:
    """Return what buildah prints."""
    argv = [*_own_buildah(), *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def _own_buildah() -> list[str]:
    """Return buildah with a store of our own, so that the user's is left alone."""
    store_flags = [f"--{name}={cache.folder('images', name)}" for name in ("root", "runroot")]
    return ["buildah", *store_flags, "--storage-driver=overlay"]
