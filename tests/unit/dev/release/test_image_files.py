"""An image's files are those that its last layer leaves."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from dev.images import archive
from dev.release import image_files, sbom

STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2:2.36-9+deb12u10

Package: ca-certificates
Architecture: all
Version: 20230311
"""
LAYER = "application/vnd.oci.image.layer.v1.tar"


def layer(**files: str) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as packed:
        for path, text in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(text.encode())
            packed.addfile(entry, io.BytesIO(text.encode()))
    return held.getvalue()


def metadata(name: str, version: str, *more: str) -> str:
    return (
        "\n".join((f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}", *more)) + "\n\nText"
    )


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An image of three layers: the second exchanges a package, the third removes one."""
    old, new = (f"opt/venv/demo-{number}.dist-info" for number in ("1.0", "2.0"))
    layers = [
        layer(
            **{
                "./var/lib/dpkg/status": STATUS,
                f"{old}/METADATA": metadata("demo", "1.0"),
                "opt/gone.dist-info/METADATA": metadata("gone", "1"),
            }
        ),
        layer(
            **{
                "opt/venv/.wh.demo-1.0.dist-info": "",
                f"{new}/METADATA": metadata("Demo_It", "2.0", "License-Expression: MIT"),
            }
        ),
        layer(**{"opt/gone.dist-info/.wh..wh..opq": ""}),
    ]
    folder = tmp_path / "layout"
    manifest = {
        "config": archive.put(folder, b"{}", "config"),
        "layers": [archive.put(folder, content, LAYER) for content in layers],
    }
    top = archive.put(folder, json.dumps(manifest).encode(), "manifest")
    (folder / "index.json").write_text(json.dumps({"manifests": [top]}))
    archive.pack(folder, "rlfleet.local/operator:1", tmp_path / "image.tar")
    return tmp_path / "image.tar"


def test_removed_files_are_gone_and_replaced_ones_are_the_last(image: Path) -> None:
    found = image_files.read(image, (image_files.DPKG, image_files.PYTHON))

    assert set(found) == {"var/lib/dpkg/status", "opt/venv/demo-2.0.dist-info/METADATA"}


def test_an_image_s_parts_are_debian_s_and_python_s_packages(image: Path) -> None:
    assert sbom.of_image(image) == [
        sbom.Part(
            "ca-certificates", "20230311", "pkg:deb/debian/ca-certificates@20230311?arch=all"
        ),
        sbom.Part("demo-it", "2.0", "pkg:pypi/demo-it@2.0", "MIT"),
        sbom.Part(
            "libc6", "2:2.36-9+deb12u10", "pkg:deb/debian/libc6@2%3A2.36-9%2Bdeb12u10?arch=amd64"
        ),
    ]


def test_an_archive_is_found_under_its_name_by_containerd_and_by_docker(image: Path) -> None:
    with tarfile.open(image) as outer:
        files = {entry.name: outer.extractfile(entry) for entry in outer}
        index, docker = (
            json.loads(file.read())
            for file in (files["index.json"], files["manifest.json"])
            if file
        )

    (top,) = index["manifests"]
    assert top["annotations"]["io.containerd.image.name"] == "rlfleet.local/operator:1"
    assert docker[0]["RepoTags"] == ["rlfleet.local/operator:1"]
    assert set(docker[0]["Layers"]) <= set(files)
