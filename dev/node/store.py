"""The node's image store: which images it has, and how new ones get in.

An image is an OCI layout on disk. Only its blobs that the node has not yet are
streamed to `ctr images import`; the rest is known by digest. So the gigabytes of
a base image cross once and a change of our own code crosses in a second.
"""

import io
import json
import subprocess
import tarfile
from pathlib import Path

from dev.node import layout, namespaces
from dev.steps import StepFailed


def names() -> set[str]:
    """Return the names of the images that pods may use now."""
    return set(_ctr("images", "ls", "--quiet").split())


def blob(digest: str) -> Path:
    """Return where the node keeps the blob with this `sha256:…` digest, if it has it."""
    content = layout.containerd_root() / "io.containerd.content.v1.content" / "blobs"
    return content.joinpath(*digest.split(":"))


def load(folder: Path, name: str) -> None:
    """Bring the image in an OCI layout folder into the node under a name."""
    index = json.loads((folder / "index.json").read_text())
    for manifest in index["manifests"]:
        manifest["annotations"] = {"io.containerd.image.name": name}
    holder = namespaces.current()
    if not holder:
        message = f"the cluster is not up, so {name} cannot be loaded; `make cluster` first"
        raise StepFailed(message)
    argv = holder.inside("ctr", "--address", layout.CONTAINERD_SOCKET, "--namespace", "k8s.io", "images", "import", "-")
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as importing:
        assert importing.stdin is not None
        assert importing.stderr is not None
        with tarfile.open(fileobj=importing.stdin, mode="w|") as archive:
            _add(archive, "oci-layout", (folder / "oci-layout").read_bytes())
            _add(archive, "index.json", json.dumps(index).encode())
            for path in sorted((folder / "blobs" / "sha256").iterdir()):
                if not blob(f"sha256:{path.name}").exists():
                    archive.add(path, f"blobs/sha256/{path.name}")
        importing.stdin.close()
        said = importing.stderr.read().decode()
    if importing.returncode:
        message = f"{name} cannot be loaded into the node: {said}"
        raise StepFailed(message)


def remove(*unwanted: str) -> None:
    """Forget images; containerd frees their space by itself."""
    if unwanted:
        _ctr("images", "rm", *unwanted)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _ctr(*argv: str) -> str:
    holder = namespaces.current()
    if not holder:
        return ""
    inside = holder.inside("ctr", "--address", layout.CONTAINERD_SOCKET, "--namespace", "k8s.io", *argv)
    return subprocess.run(inside, check=True, capture_output=True, text=True).stdout
