"""Maps versions to directories and back: published ones, and a trainer's own checkpoints.

A trainer's own checkpoint is another version than the published one of the same step, because
their bytes are not compared; its name begins with ``saved-``. It must stay true that a name
never leads to two directories.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Self

from rlfleet_contract.paths import BASE_VERSION, VERSION_PATTERN
from rlfleet_contract.version_order import number_of
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.checkpoints.folder import Folder, Location, Root
from rlfleet_sidecar.checkpoints.safe_paths import Layout
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.settings import PLACEHOLDER, SidecarSettings
from rlfleet_sidecar.state.sent_weights import PREFIX as SENT
from rlfleet_sidecar.stores.places import StorePlaces
from rlfleet_sidecar.stores.url import StoreLayout

PREFIX = "saved-"


@dataclass(frozen=True, slots=True)
class Layouts:
    """The locations of all versions."""

    published: Layout
    """On a volume; unused with a store."""
    saved: Layout | None = None
    store: StorePlaces | None = None

    @classmethod
    def of(cls, settings: SidecarSettings) -> Self:
        """Return the locations that the settings name."""
        saved, source = settings.trainer_saved_path, settings.weights_source
        return cls(
            Layout.of(settings.weights_path),
            None if saved is None else Layout.of(saved),
            None if source is None else StorePlaces(settings, source),
        )

    def version_of(self, directory: str) -> str:
        """Return the version of a directory, from its name; raises if it has none."""
        try:
            version = self._published.version_of(directory)
        except SidecarError as error:
            return self._saved_version_of(directory, error)
        if self.saved is not None and version.startswith(PREFIX):
            raise SidecarError(
                Code.PATH_REFUSED,
                f"{directory:.300} has the prefix {PREFIX} of checkpoints in"
                f" {self.saved.folder_of(PLACEHOLDER)}; rename it",
            )
        if version.startswith(SENT):
            raise SidecarError(
                Code.PATH_REFUSED,
                f"{directory:.300} has the prefix {SENT} of weights sent by a trainer; rename it",
            )
        return version

    def open(
        self, version: str, reader_uid: int | None
    ) -> AbstractContextManager[tuple[Folder, ...]]:
        """Open the version's directories from the outermost to the one with the weights."""
        if version.startswith(SENT):
            # The code of a missing version, because the operator requests these weights again.
            raise SidecarError(
                Code.VERSION_NOT_FOUND,
                f"{version} was sent by a trainer and has no directory; send it again",
            )
        if self.saved is None or not version.startswith(PREFIX):
            if self.store is not None:
                return self.store.open(version)
            return self.published.open(version, reader_uid)
        name = version.removeprefix(PREFIX)
        if re.fullmatch(VERSION_PATTERN, name) is None or name == BASE_VERSION:
            raise SidecarError(
                Code.PATH_REFUSED, f"{name} is not the name of a trainer's checkpoint; rename it"
            )
        return self.saved.open(name, reader_uid)

    def open_root(self, *, above: bool = False) -> AbstractContextManager[Root]:
        """Open what holds the published versions, or what holds that."""
        places = self.published if self.store is None else self.store
        return places.open_root(above=above)

    def remove(self, version: str, steps: Sequence[Collection[str]]) -> None:
        """Delete a published version: objects of these names first, in steps, then all others."""
        if self.store is None:
            raise SidecarError(
                Code.INVALID_REQUEST,
                "cannot delete on a volume, which is mounted read-only; let the trainer delete",
            )
        self.store.remove(version, steps)

    def folder_of(self, version: str) -> Location:
        """Return the place of a published version."""
        return self._published.folder_of(version)

    def numbered(self, names: Iterable[str]) -> list[tuple[int, str]]:
        """Return the versions among names in the root that have a number, highest first."""
        before, _, after = self._published.parts[0].partition(PLACEHOLDER)
        inner = (
            name[len(before) : len(name) - len(after)]
            for name in names
            if name.startswith(before) and name.endswith(after)
        )
        found = [
            (number, version)
            for version in inner
            if re.fullmatch(VERSION_PATTERN, version) and (number := number_of(version)) is not None
        ]
        return sorted(found, reverse=True)

    @property
    def root_name(self) -> str:
        """The last name of the root's path."""
        return self._published.root.name

    @property
    def _published(self) -> Layout | StoreLayout:
        return self.published if self.store is None else self.store.layout

    def _saved_version_of(self, directory: str, refused: SidecarError) -> str:
        if self.saved is None:
            hint = "; for a trainer's own checkpoints set RLFLEET_TRAINER_SAVED_PATH"
            raise SidecarError(refused.code, refused.message + hint) from refused
        try:
            version = PREFIX + self.saved.version_of(directory)
        except SidecarError as error:
            hint = f", or {self.saved.folder_of(PLACEHOLDER)} for a trainer's own checkpoints"
            raise SidecarError(refused.code, refused.message + hint) from error
        if re.fullmatch(VERSION_PATTERN, version) is None:
            raise SidecarError(
                Code.PATH_REFUSED, f"{directory:.300} has a name that is too long; shorten it"
            )
        return version
