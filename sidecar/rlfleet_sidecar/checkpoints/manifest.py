"""A trainer's list of a version's files with their hashes.

Optional. `{"files": {"model.safetensors": {"size": 123, "sha256": "…"}}}`, or `blake3`, or both;
it must list every file that is loaded, and every listed file must exist. It may contain a
``probe``: the answer of the trainer's model (trainer_probe.py).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any, Self

from blake3 import blake3
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError, model_validator

from rlfleet_contract.paths import MANIFEST_FILE
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.checkpoints.folder import Folder, Location
from rlfleet_sidecar.checkpoints.headers import Headers, bytes_of, damage_named, invalid, parsed
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.proof.trainer_probe import TrainerProbe

_PIECE = 16 * 1024 * 1024
"""Of an object in a store each is a request."""
_Name = Annotated[str, StringConstraints(pattern=r"^[^/\x00]{1,255}$")]
_Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_ALGORITHMS: dict[str, Callable[[], Any]] = {"sha256": sha256, "blake3": blake3}


class _Entry(BaseModel):
    # What a later release may add is allowed, but for a hash in place of these.
    model_config = ConfigDict(frozen=True, extra="allow")

    size: int
    sha256: _Hash | None = None
    blake3: _Hash | None = None

    @model_validator(mode="after")
    def _demand_hash(self) -> Self:
        if not self.hashes:
            others = ", ".join(sorted(self.model_extra or ())) or "no hash"
            raise ValueError(f"has {others}, expected {' or '.join(_ALGORITHMS)}")
        return self

    @property
    def hashes(self) -> dict[str, str]:
        """The hashes by their algorithms."""
        found = {name: getattr(self, name) for name in _ALGORITHMS}
        return {name: value for name, value in found.items() if value is not None}


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    files: dict[_Name, _Entry]
    probe: TrainerProbe | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The expected hashes of a version's files."""

    folder: Location
    digest: str
    hashes: Mapping[str, Mapping[str, str]]
    """By file and algorithm."""
    probe: TrainerProbe | None = None


class FileHash:
    """Hashes one file as its manifest does, by each algorithm that it names for the file."""

    def __init__(self, manifest: Manifest, name: str) -> None:
        self._where = manifest.folder / name
        self._expected = manifest.hashes.get(name, {})
        self._hashes = [(algorithm, _ALGORITHMS[algorithm]()) for algorithm in self._expected]

    def update(self, piece: bytes | memoryview) -> None:
        """Take the next bytes."""
        for _, hashed in self._hashes:
            hashed.update(piece)

    def demand(self) -> None:
        """Raise if the manifest lists another hash."""
        for algorithm, hashed in self._hashes:
            found, expected = hashed.hexdigest(), self._expected[algorithm]
            if found != expected:
                raise mismatch(
                    self._where,
                    f"has {algorithm} {found}, expected {expected} by {MANIFEST_FILE};"
                    " write it again",
                )


def manifest_of(folder: Folder, content: Headers, expected: str | None) -> Manifest | None:
    """Return the manifest after a comparison of names and sizes; None if there is none."""
    path = folder.path / MANIFEST_FILE
    if MANIFEST_FILE not in folder.names():
        if expected is not None:
            raise mismatch(folder.path, f"has no {MANIFEST_FILE}, expected {expected}; write one")
        return None
    data = bytes_of(folder, MANIFEST_FILE)
    digest = f"sha256:{sha256(data).hexdigest()}"
    if expected not in {None, digest}:
        raise mismatch(path, f"has digest {digest}, expected {expected}; correct the request")
    try:
        found = _File.model_validate(parsed(path, data))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        why = first["msg"].removeprefix("Value error, ")
        raise invalid(path, f"is not a manifest: {field}: {why}") from error
    files = found.files
    if unnamed := sorted({stamp.name for stamp in content.files} - files.keys()):
        raise mismatch(path, f"does not list {unnamed[0]}; add it")
    _demand_sizes(folder, files)
    hashes = {name: entry.hashes for name, entry in files.items()}
    return Manifest(folder.path, digest, hashes, found.probe)


def demand_hashes(
    folder: Folder, manifest: Manifest, names: Iterable[str], demand_wanted: Callable[[], None]
) -> None:
    """Raise unless these files have the hashes that a manifest lists."""
    for name in names:
        hashed = FileHash(manifest, name)
        with folder.open(name) as reading, damage_named(folder.path / name):
            for place in range(0, reading.stamp.size, _PIECE):
                hashed.update(reading.read(min(_PIECE, reading.stamp.size - place), place))
                demand_wanted()
        hashed.demand()


def mismatch(path: Location, what: str) -> SidecarError:
    """Return the error for bytes other than the expected ones."""
    return SidecarError(Code.DIGEST_MISMATCH, f"{path} {what}")


def _demand_sizes(folder: Folder, files: dict[str, _Entry]) -> None:
    for name, entry in files.items():
        stamp = folder.stamp(name)
        size = None if stamp is None else stamp.size
        if size != entry.size:
            found = "is missing" if size is None else f"has {size} bytes"
            raise mismatch(
                folder.path / name, f"{found}, expected {entry.size} bytes by {MANIFEST_FILE}"
            )
