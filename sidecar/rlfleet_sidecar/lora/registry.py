"""The adapters that this worker must serve, on disk.

An engine loses them with every boot; the sidecar loads them again from here. An invalid file
counts as empty: operator or trainer load their adapters again.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.worker.problems import Problem
from rlfleet_sidecar.atomic_file import write_whole

_FILE = "adapters.json"
_log = logging.getLogger(__name__)


class LoRACopy(BaseModel):
    """A checked adapter, with the files for the engine."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    version: str
    source: Path
    """The trainer's directory."""
    directory: Path
    """Where the engine reads it: a copy, or the trainer's directory."""
    digest: str
    sources: tuple[FileStamp, ...]
    """The trainer's files at the check."""
    files: tuple[FileStamp, ...]
    """The files in ``directory``."""
    nbytes: int = 0
    """Bytes of the copy in the cache; 0 without a copy."""


class RegistryEntry(BaseModel):
    """The record of one name."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    wanted: LoRACopy | None = None
    """The adapter loaded last; None if none ever was."""
    is_declared: bool = False
    """Whether an operator has loaded it for the fleet's spec."""
    problem: Problem | None = None
    """Why the last command for it failed."""


_ENTRIES = TypeAdapter(dict[str, RegistryEntry])


class Registry:
    """The entries, written to disk with each change."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / _FILE
        self._entries = _read(self._path)

    @property
    def entries(self) -> Mapping[str, RegistryEntry]:
        """The entries by name."""
        return self._entries

    def put(self, name: str, entry: RegistryEntry) -> None:
        """Add or replace an entry."""
        self._write({**self._entries, name: entry})

    def drop(self, name: str) -> None:
        """Remove an entry."""
        self._write({known: entry for known, entry in self._entries.items() if known != name})

    def _write(self, entries: dict[str, RegistryEntry]) -> None:
        if entries == self._entries:
            return
        write_whole(self._path, _ENTRIES.dump_json(entries).decode())
        self._entries = entries


def _read(path: Path) -> dict[str, RegistryEntry]:
    try:
        return _ENTRIES.validate_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValidationError:
        _log.warning("Adapters file invalid, starting with none", extra={"path": path})
        return {}
