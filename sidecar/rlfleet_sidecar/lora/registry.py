"""Which adapters this worker shall serve, on disk.

An engine forgets them with every start; from here they come back. A book that cannot be
read counts as empty: whoever wants adapters asks for them anew.
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
    """An adapter that was checked and read, and where the engine finds it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    version: str
    source: Path
    """Where the trainer put it."""
    directory: Path
    """Where the engine reads it: a copy, or the trainer's own directory."""
    digest: str
    sources: tuple[FileStamp, ...]
    """The trainer's files as they were checked."""
    files: tuple[FileStamp, ...]
    """The files in ``directory``."""
    nbytes: int = 0
    """What the copy takes of the cache; 0 if there is none."""


class RegistryEntry(BaseModel):
    """What is known of one name."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    wanted: LoRACopy | None = None
    """What was loaded last; None if nothing ever was."""
    is_declared: bool = False
    """Whether an operator asked for it, for the fleet's spec."""
    problem: Problem | None = None
    """Why the last command about it failed."""


_ENTRIES = TypeAdapter(dict[str, RegistryEntry])


class Book:
    """The one place where entries change."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / _FILE
        self._entries = _read(self._path)

    @property
    def entries(self) -> Mapping[str, RegistryEntry]:
        """What is known, by name."""
        return self._entries

    def put(self, name: str, entry: RegistryEntry) -> None:
        """Note what is known of a name."""
        self._write({**self._entries, name: entry})

    def drop(self, name: str) -> None:
        """Forget a name."""
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
        _log.warning("The adapters' book cannot be read and counts as empty", extra={"path": path})
        return {}
