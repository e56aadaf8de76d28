"""What differs between two files of one name: the paths in archives, in images by layer."""

import hashlib
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dev.release import image_files

SHOWN = 20
"""Differences that are named of one file."""
Entries = dict[str, dict[str, Any]]


def differences(one: Path, other: Path) -> list[str]:
    """Return a line for each difference of two files that are known to differ."""
    for path in (one, other):
        if not path.exists():
            return [f"{path.name}: missing in {path.parent}"]
    found = [f"{one.name}: {line}" for line in _inside(one, other)]
    more = [f"{one.name}: {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return [*found[:SHOWN], *more]


def _inside(one: Path, other: Path) -> Iterator[str]:
    if one.name.endswith(".oci.tar"):
        yield from _of_images(one, other)
    elif tarfile.is_tarfile(one) and tarfile.is_tarfile(other):
        with tarfile.open(one) as first, tarfile.open(other) as second:
            yield from _of_entries(_of_tar(first), _of_tar(second))
    elif zipfile.is_zipfile(one) and zipfile.is_zipfile(other):
        yield from _of_entries(_of_zip(one), _of_zip(other))
    else:
        yield "content"


def _of_images(one: Path, other: Path) -> Iterator[str]:
    """Compare the blobs; only a layer of another digest is read."""
    with tarfile.open(one) as first, tarfile.open(other) as second:
        mine, theirs = image_files.blobs(first), image_files.blobs(second)
        for part in [part for part in mine | theirs if mine.get(part) != theirs.get(part)]:
            if part in mine and part in theirs and part.startswith(image_files.LAYER):
                layers = (_of_layer(first, mine[part]), _of_layer(second, theirs[part]))
                yield from (f"{part}: {line}" for line in _of_entries(*layers))
            else:
                yield part


def _of_layer(outer: tarfile.TarFile, digest: str) -> Entries:
    with image_files.layer(outer, digest) as files:
        return _of_tar(files)


def _of_tar(files: tarfile.TarFile) -> Entries:
    return {
        entry.name: {
            "content": _digest(files, entry),
            "kind": (entry.type, entry.linkname),
            "mode": entry.mode,
            "owner": (entry.uid, entry.gid),
            "time": entry.mtime,
        }
        for entry in files
    }


def _digest(files: tarfile.TarFile, entry: tarfile.TarInfo) -> str:
    file = files.extractfile(entry) if entry.isreg() else None
    return hashlib.file_digest(file, "sha256").hexdigest() if file else ""  # type: ignore[arg-type]


def _of_zip(path: Path) -> Entries:
    with zipfile.ZipFile(path) as files:
        return {
            entry.filename: {
                "content": entry.CRC,
                "mode": entry.external_attr,
                "time": entry.date_time,
            }
            for entry in files.infolist()
        }


def _of_entries(one: Entries, other: Entries) -> Iterator[str]:
    if one == other:
        yield "order or compression"
    for path in sorted(one.keys() | other.keys()):
        mine, theirs = one.get(path), other.get(path)
        if mine is None or theirs is None:
            yield f"{path} (only in the {'second' if mine is None else 'first'})"
        elif said := [name for name in mine if mine[name] != theirs[name]]:
            yield f"{path} ({', '.join(said)})"
