"""An OCI image made of single files, written without any tool.

CoreDNS and the pause program are static binaries: their image is one layer with
one file. The layout is that of the OCI image specification, uncompressed: the
node lies on the same disk, and compressing would cost more than it saves.
"""

import hashlib
import io
import json
import tarfile
from pathlib import Path

MEDIA = "application/vnd.oci.image"


def write(folder: Path, program: Path) -> None:
    """Write the layout of an image that runs one static program."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    layer = _put(blobs, _layer(program))
    settings = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"], "User": "65532:65532"},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    config = _put(blobs, json.dumps(settings).encode())
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{MEDIA}.manifest.v1+json",
        "config": {"mediaType": f"{MEDIA}.config.v1+json", **config},
        "layers": [{"mediaType": f"{MEDIA}.layer.v1.tar", **layer}],
    }
    top = {"mediaType": f"{MEDIA}.manifest.v1+json", **_put(blobs, json.dumps(manifest).encode())}
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [top]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


def _layer(program: Path) -> bytes:
    content = program.read_bytes()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        entry = tarfile.TarInfo(program.name)
        entry.size, entry.mode = len(content), 0o755
        archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def _put(blobs: Path, content: bytes) -> dict[str, str | int]:
    digest = hashlib.sha256(content).hexdigest()
    (blobs / digest).write_bytes(content)
    return {"digest": f"sha256:{digest}", "size": len(content)}
