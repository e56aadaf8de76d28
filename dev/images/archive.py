"""An image as one file: what `kind load image-archive`, `docker load` and `ctr` take.

A tar of an OCI layout, with the image's name where containerd looks for it, and a manifest.json
for Docker before 25. The same layout makes the same bytes.
"""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

INDEX = "application/vnd.oci.image.index.v1+json"


def pack(layout: Path, name: str, target: Path) -> None:
    """Write the only image of a layout's folder as an archive under this name."""
    (top,) = json.loads((layout / "index.json").read_text())["manifests"]
    tag = name.rpartition(":")[2]
    notes = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag}
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [{**top, "annotations": notes}]}
    manifest = json.loads(_blob(layout, top["digest"]).read_text())
    small = {
        "index.json": _json(index),
        "manifest.json": _json([_for_docker(manifest, name)]),
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
    }
    used = [top, manifest["config"], *manifest["layers"]]
    with tarfile.open(target, "w", format=tarfile.USTAR_FORMAT) as archive:
        for path, content in small.items():
            archive.addfile(_entry(path, len(content)), io.BytesIO(content))
        for digest in sorted({descriptor["digest"] for descriptor in used}):
            blob = _blob(layout, digest)
            with blob.open("rb") as content_of:
                archive.addfile(_entry(_path(digest), blob.stat().st_size), content_of)


def put(folder: Path, content: bytes, media_type: str) -> dict[str, Any]:
    """Write a blob into a layout's folder; return its descriptor."""
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    path = folder / _path(digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return {"mediaType": media_type, "digest": digest, "size": len(content)}


def _for_docker(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    layers = [_path(layer["digest"]) for layer in manifest["layers"]]
    return {"Config": _path(manifest["config"]["digest"]), "RepoTags": [name], "Layers": layers}


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _blob(layout: Path, digest: str) -> Path:
    return layout / _path(digest)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o644
    return entry
