"""What differs in two releases is named by its path."""

import io
import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from dev.images import archive
from dev.release import comparison

LAYER = "application/vnd.oci.image.layer.v1.tar"
Files = dict[str, tuple[str, int, int]]
"""Text, mode and time of each."""


def tar(files: Files) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as packed:
        for path, (text, mode, time) in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode, entry.mtime = len(text), mode, time
            packed.addfile(entry, io.BytesIO(text.encode()))
    return held.getvalue()


def image(target: Path, config: str, *layers: Files) -> None:
    folder = target.with_name(f"{target.parent.name}-layout")
    manifest = {
        "config": archive.put(folder, config.encode(), "config"),
        "layers": [archive.put(folder, tar(files), LAYER) for files in layers],
    }
    top = archive.put(folder, json.dumps(manifest).encode(), "manifest")
    (folder / "index.json").write_text(json.dumps({"manifests": [top]}))
    archive.pack(folder, "rlfleet.local/operator:1", target)


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    folders = tmp_path / "one", tmp_path / "other"
    for folder in folders:
        folder.mkdir()
    return folders


def test_an_image_s_paths_are_named_with_their_layer(two: tuple[Path, Path]) -> None:
    one, other = (folder / "worker.oci.tar" for folder in two)
    same: Files = {"same": ("a", 0o644, 1)}
    image(one, "1", same, {"opt/a.pyc": ("1", 0o644, 1), "opt/b": ("", 0o600, 1)})
    image(other, "2", same, {"opt/a.pyc": ("2", 0o644, 2), "opt/b": ("", 0o644, 1)})

    assert comparison.differences(one, other) == [
        "worker.oci.tar: manifest",
        "worker.oci.tar: config",
        "worker.oci.tar: layer 2: opt/a.pyc (content, time)",
        "worker.oci.tar: layer 2: opt/b (mode)",
    ]


def test_a_layer_that_only_one_has_is_named(two: tuple[Path, Path]) -> None:
    one, other = (folder / "worker.oci.tar" for folder in two)
    image(one, "", {}, {"a": ("", 0o644, 1)})
    image(other, "", {})

    assert comparison.differences(one, other)[-1] == "worker.oci.tar: layer 2"


def test_paths_in_other_archives_are_named(two: tuple[Path, Path]) -> None:
    one, other = (folder / "rlfleet.tar.gz" for folder in two)
    one.write_bytes(tar({"a": ("", 0o644, 1), "b": ("", 0o644, 1)}))
    other.write_bytes(tar({"b": ("", 0o644, 2), "c": ("", 0o644, 1)}))

    assert comparison.differences(one, other) == [
        "rlfleet.tar.gz: a (only in the first)",
        "rlfleet.tar.gz: b (time)",
        "rlfleet.tar.gz: c (only in the second)",
    ]


def test_the_same_files_in_another_order_are_said_to_be(two: tuple[Path, Path]) -> None:
    one, other = (folder / "a.tgz" for folder in two)
    a, b = ("a", ("", 0o644, 1)), ("b", ("", 0o644, 1))
    one.write_bytes(tar(dict([a, b])))
    other.write_bytes(tar(dict([b, a])))

    assert comparison.differences(one, other) == ["a.tgz: order or compression"]


def test_paths_in_a_wheel_are_named_the_first_of_many(two: tuple[Path, Path]) -> None:
    one, other = (folder / "a.whl" for folder in two)
    for path, text in ((one, "1"), (other, "2")):
        with zipfile.ZipFile(path, "w") as packed:
            for number in range(comparison.SHOWN + 3):
                packed.writestr(zipfile.ZipInfo(f"{number:03}"), text)

    lines = comparison.differences(one, other)
    assert lines[0] == "a.whl: 000 (content)"
    assert lines[-1] == "a.whl: 3 more"
    assert len(lines) == comparison.SHOWN + 1


def test_another_file_differs_or_is_missing(two: tuple[Path, Path]) -> None:
    one, other = (folder / "SHA256SUMS" for folder in two)
    one.write_text("1")
    assert comparison.differences(one, other) == [f"SHA256SUMS: missing in {two[1]}"]

    other.write_text("2")
    assert comparison.differences(one, other) == ["SHA256SUMS: content"]
