"""Is a version complete, by what its publisher writes last? Reads one small file at most.

The check before a pause (checkpoints/check.py) reads the rest. This must stay true: a version
that is still being written counts as incomplete.
"""

import json
from collections.abc import Mapping, Sequence

from rlfleet_sidecar.checkpoints.check import is_marked
from rlfleet_sidecar.checkpoints.folder import Folder
from rlfleet_sidecar.deltas.formats import index
from rlfleet_sidecar.deltas.formats.names import SKYRL, WEIGHTS, series_of

_INDEX, _MANIFEST = WEIGHTS.commit, SKYRL.commit
_MAX_BYTES = 64 * 2**20


def is_complete(folders: Sequence[Folder], version: str, markers: Sequence[str]) -> bool:
    """Return whether a version may be taken; raises SidecarError if it cannot be read.

    Of a series (deltas/formats/names.py) an index with its version's number is written last
    (slime, miles, Stitch), and so is a manifest (SkyRL). Everything else needs a marker, as the
    check before a pause demands: other tools write versions of their own into an index.
    """
    folder = folders[-1]
    names = set(folder.names())
    series, number = series_of(version) or (None, 0)
    if series is WEIGHTS and _INDEX in names:
        found = _json(folder, _INDEX)
        is_its = index.is_numbered(found, number)
        if is_its or index.is_delta(found):
            return is_its and _has(names, found.get("weight_map"), dict)
    elif series is SKYRL and _MANIFEST in names:
        found = _json(folder, _MANIFEST)
        if "base_version" in found:
            is_its = found.get("version") == number
            return is_its and _has(names, found.get("payload_files"), list)
    return is_marked(folders, markers)


def is_whole(folders: Sequence[Folder], version: str, markers: Sequence[str]) -> bool:
    """Return whether a version is complete, and no delta; raises SidecarError."""
    folder = folders[-1]
    names = set(folder.names())
    series = series_of(version)
    if series is not None and series[0].commit in names:
        found = _json(folder, series[0].commit)
        if not found or index.is_delta(found) or "base_version" in found:
            return False
    return is_complete(folders, version, markers)


def _has(names: set[str], listed: object, kind: type[dict[str, str]] | type[list[str]]) -> bool:
    """Return whether every file that is listed is there."""
    if not isinstance(listed, kind):
        return False
    files = listed.values() if isinstance(listed, dict) else listed
    return all(isinstance(file, str) and file in names for file in files)


def _json(folder: Folder, name: str) -> Mapping[str, object]:
    with folder.open(name) as reading:
        size = min(reading.stamp.size, _MAX_BYTES)
        try:
            found = json.loads(reading.read(size, 0))
        except (ValueError, RecursionError):
            return {}
    return found if isinstance(found, dict) else {}
