"""Reads files of an image from its archive, as the layers leave them."""

import json
import re
import tarfile
from collections.abc import Iterable
from pathlib import Path

DPKG = "var/lib/dpkg/status"
PYTHON = r".*\.dist-info/METADATA"
LAYER = "layer"
_REMOVED = re.compile(r"(.*/)?\.wh\.([^/]+)")
_EMPTIED = ".wh..opq"


def read(archive: Path, patterns: Iterable[str]) -> dict[str, str]:
    """Return the text of each file whose path matches one of these patterns."""
    wanted = re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
    found: dict[str, str] = {}
    with tarfile.open(archive) as outer:
        for blob, digest in blobs(outer).items():
            if blob.startswith(LAYER):
                with layer(outer, digest) as files:
                    _apply(files, wanted, found)
    return found


def blobs(outer: tarfile.TarFile) -> dict[str, str]:
    """Return the digest of each part of the image: manifest, config, and layers in order."""
    (top,) = json.loads(_text(outer, "index.json"))["manifests"]
    manifest = json.loads(_text(outer, _path(top["digest"])))
    held = {"manifest": top["digest"], "config": manifest["config"]["digest"]}
    for number, one in enumerate(manifest["layers"], 1):
        held[f"{LAYER} {number}"] = one["digest"]
    return held


def layer(outer: tarfile.TarFile, digest: str) -> tarfile.TarFile:
    """Open a layer."""
    return tarfile.open(fileobj=outer.extractfile(_path(digest)))


def _apply(files: tarfile.TarFile, wanted: re.Pattern[str], found: dict[str, str]) -> None:
    """Lay one layer over what was found below it."""
    fresh: dict[str, str] = {}
    for entry in files:
        name = entry.name.removeprefix("./").lstrip("/")
        if removed := _REMOVED.fullmatch(name):
            folder, gone = removed[1] or "", removed[2]
            lost = folder if gone == _EMPTIED else f"{folder}{gone}"
            for path in [path for path in found if f"{path}/".startswith(f"{lost.rstrip('/')}/")]:
                del found[path]
        elif entry.isfile() and wanted.fullmatch(name):
            fresh[name] = _text(files, entry.name)
    found |= fresh


def _text(files: tarfile.TarFile, name: str) -> str:
    content = files.extractfile(name)
    if content is None:
        raise tarfile.TarError(f"{name} is no file")
    return content.read().decode(errors="replace")


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"
