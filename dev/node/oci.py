"""An OCI image made of single files, written without any tool.

CoreDNS and the pause program are static binaries: their image is one layer with
one file, uncompressed: the node lies on the same disk, and compressing would
cost more than it saves. dev.node.store loads it.
"""

import hashlib
import io
import json
import tarfile
from pathlib import Path

MEDIA = "application/vnd.oci.image"


def write(folder: Path, program: Path) -> Path:
    """Write the blobs of an image that runs one static program; return its manifest."""
    layer = _put(folder, _layer(program))
    settings = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"], "User": "65532:65532"},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{MEDIA}.manifest.v1+json",
        "config": {
            "mediaType": f"{MEDIA}.config.v1+json",
            **_put(folder, json.dumps(settings).encode()),
        },
        "layers": [{"mediaType": f"{MEDIA}.layer.v1.tar", **layer}],
    }
    path = folder / "manifest.json"
    path.write_text(json.dumps(manifest))
    return path


def _layer(program: Path) -> bytes:
    content = program.read_bytes()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        entry = tarfile.TarInfo(program.name)
        entry.size, entry.mode = len(content), 0o755
        archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def _put(folder: Path, content: bytes) -> dict[str, str | int]:
    digest = hashlib.sha256(content).hexdigest()
    (folder / digest).write_bytes(content)
    return {"digest": f"sha256:{digest}", "size": len(content)}
