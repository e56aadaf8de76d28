"""The node's image store: which images it has, and how new ones get in.

Of an image only the blobs that the node has not yet are streamed to `ctr images
import`; the rest is known by digest. So the gigabytes of a base image cross once,
and a change of our own code crosses in a second.
"""

import hashlib
import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from subprocess import DEVNULL, PIPE

from dev.node import layout, namespaces
from dev.steps import StepFailed


def names() -> set[str]:
    """Return the names of the images that pods may use now."""
    return set(_ctr("images", "ls", "--quiet").split())


def blob(digest: str) -> Path:
    """Return where the node keeps the blob with this `sha256:…` digest, if it has it."""
    content = layout.containerd_root() / "io.containerd.content.v1.content" / "blobs"
    return content.joinpath(*digest.split(":"))


def load(name: str, manifest: Path, blobs: Path) -> None:
    """Bring an image into the node from its manifest and a folder of blobs."""
    holder = namespaces.current()
    if not holder:
        raise StepFailed(f"no cluster is up to load {name} into; `make cluster` first")
    reading, writing = os.pipe()
    argv = holder.inside(*layout.CTR, "images", "import", "-")
    with subprocess.Popen(argv, stdin=reading, stdout=DEVNULL, stderr=PIPE) as importing:
        os.close(reading)
        with os.fdopen(writing, "wb") as out, tarfile.open(fileobj=out, mode="w|") as archive:
            _fill(archive, name, manifest, blobs)
        said = importing.communicate()[1].decode()
    if importing.returncode:
        raise StepFailed(f"{name} cannot be loaded into the node: {said}")


def _fill(archive: tarfile.TarFile, name: str, manifest_file: Path, blobs: Path) -> None:
    """Write the image as an OCI layout, without the blobs that the node has."""
    content = manifest_file.read_bytes()
    manifest = json.loads(content)
    digest = hashlib.sha256(content).hexdigest()
    top = {
        "mediaType": manifest["mediaType"],
        "digest": f"sha256:{digest}",
        "size": len(content),
        "annotations": {"io.containerd.image.name": name},
    }
    _add(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
    _add(archive, "index.json", json.dumps({"schemaVersion": 2, "manifests": [top]}).encode())
    _add(archive, f"blobs/sha256/{digest}", content)
    for descriptor in (manifest["config"], *manifest["layers"]):
        if not blob(descriptor["digest"]).exists():
            own = descriptor["digest"].partition(":")[2]
            archive.add(blobs / own, f"blobs/sha256/{own}")


def remove(*unwanted: str) -> None:
    """Forget images; containerd frees their space by itself."""
    if not unwanted:
        return
    _ctr("images", "rm", *unwanted)
    # Kubernetes' part keeps a second name, `sha256:…`, for every image.
    rows = [line.split() for line in _ctr("images", "ls").splitlines()[1:]]
    kept = {row[2] for row in rows if not row[0].startswith("sha256:")}
    nameless = [row[0] for row in rows if row[2] not in kept]
    if nameless:
        _ctr("images", "rm", *nameless)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _ctr(*argv: str) -> str:
    holder = namespaces.current()
    if not holder:
        return ""
    inside = holder.inside(*layout.CTR, *argv)
    return subprocess.run(inside, check=True, capture_output=True, text=True).stdout
