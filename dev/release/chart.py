"""The chart as helm packages it, and as an OCI artefact that a registry takes.

helm puts the present time into its archive; what it packaged is written again without.
"""

import gzip
import io
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path

import yaml

from dev import cache
from dev.images import archive
from dev.release import version

CHART = cache.REPOSITORY / "charts" / "rlfleet"
CONFIG = "application/vnd.cncf.helm.config.v1+json"
CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def make(folder: Path, helm: str, epoch: int) -> list[Path]:
    """Write the package and the artefact; return their paths."""
    with tempfile.TemporaryDirectory() as scratch:
        words = [helm, "package", str(CHART), f"--destination={scratch}"]
        subprocess.run(words, check=True, capture_output=True, text=True)
        package = folder / f"rlfleet-{version.current()}.tgz"
        package.write_bytes(_settled(Path(scratch, package.name).read_bytes(), epoch))
        artefact = folder / f"rlfleet-chart-{version.current()}.oci.tar"
        _write_layout(Path(scratch), package.read_bytes())
        archive.pack(Path(scratch), f"rlfleet:{version.current()}", artefact)
    return [package, artefact]


def _settled(package: bytes, epoch: int) -> bytes:
    """Return the same archive with every time set."""
    held = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=held, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as settled,
        tarfile.open(fileobj=io.BytesIO(package)) as packed,
    ):
        for entry in packed:
            entry.mtime = epoch
            settled.addfile(entry, packed.extractfile(entry))
    return held.getvalue()


def _write_layout(folder: Path, package: bytes) -> None:
    """Write what `helm push` makes of a package, but for the time that it adds."""
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": archive.put(folder, json.dumps(about).encode(), CONFIG),
        "layers": [archive.put(folder, package, CONTENT)],
        "annotations": {
            **about["annotations"],
            "org.opencontainers.image.title": about["name"],
            "org.opencontainers.image.version": about["version"],
            "org.opencontainers.image.description": about["description"],
        },
    }
    top = archive.put(folder, json.dumps(manifest).encode(), MANIFEST)
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [top]}))
