"""Which version a directory is, and where a version lies: of those a trainer publishes and saves.

What it saved for itself is another version than what it published of the same step, because
nobody compared the two: its name begins with ``saved-``. It must stay true that a name
never leads to two directories.
"""

import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Self

from rlfleet_contract.paths import BASE_VERSION, VERSION_PATTERN
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.checkpoints.safe_paths import Folder, Layout
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.settings import PLACEHOLDER, SidecarSettings
from rlfleet_sidecar.state.sent_weights import PREFIX as SENT

PREFIX = "saved-"


@dataclass(frozen=True, slots=True)
class Layouts:
    """All places where versions lie."""

    published: Layout
    saved: Layout | None = None

    @classmethod
    def of(cls, settings: SidecarSettings) -> Self:
        """Take them from what the pod was told."""
        saved = settings.trainer_saved_path
        return cls(Layout.of(settings.weights_path), None if saved is None else Layout.of(saved))

    def version_of(self, directory: str) -> str:
        """Tell whose directory this is, by its name alone; raises if it is no version's."""
        try:
            version = self.published.version_of(directory)
        except SidecarError as error:
            return self._saved_version_of(directory, error)
        if self.saved is not None and version.startswith(PREFIX):
            raise SidecarError(
                Code.PATH_REFUSED,
                f"{directory:.300} has the name of a checkpoint at"
                f" {self.saved.folder_of(PLACEHOLDER)}: give it another one",
            )
        if version.startswith(SENT):
            raise SidecarError(
                Code.PATH_REFUSED,
                f"{directory:.300} has a name of weights that a trainer sends ({SENT}...): give it"
                " another one",
            )
        return version

    def open(
        self, version: str, reader_uid: int | None
    ) -> AbstractContextManager[tuple[Folder, ...]]:
        """Open the version's directories from the outermost to the one with the weights."""
        if version.startswith(SENT):
            # As if it were not there: a worker that serves such weights is asked for them again.
            raise SidecarError(
                Code.VERSION_NOT_FOUND,
                f"{version} names weights that a trainer sent, which lie in no directory",
            )
        if self.saved is None or not version.startswith(PREFIX):
            return self.published.open(version, reader_uid)
        name = version.removeprefix(PREFIX)
        if re.fullmatch(VERSION_PATTERN, name) is None or name == BASE_VERSION:
            raise SidecarError(Code.PATH_REFUSED, f"{name} names no directory of a checkpoint")
        return self.saved.open(name, reader_uid)

    def _saved_version_of(self, directory: str, refused: SidecarError) -> str:
        if self.saved is None:
            hint = (
                ". What a trainer saved elsewhere and goes on from is loaded if"
                " RLFLEET_TRAINER_SAVED_PATH tells where that lies"
            )
            raise SidecarError(refused.code, refused.message + hint) from refused
        try:
            version = PREFIX + self.saved.version_of(directory)
        except SidecarError as error:
            hint = f"; and of what its trainer saved, {self.saved.folder_of(PLACEHOLDER)}"
            raise SidecarError(refused.code, refused.message + hint) from error
        if re.fullmatch(VERSION_PATTERN, version) is None:
            raise SidecarError(Code.PATH_REFUSED, f"{directory:.300} has too long a name")
        return version
