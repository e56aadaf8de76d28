"""Is this version complete and loadable? Decided from headers, before a pause.

vLLM loads some bad checkpoints silently and exits on others. So it must stay true that an
accepted version holds exactly the base model's tensors, in safetensors files whose headers
describe every byte. staging/staging.py reads the tensors themselves.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.checkpoints import compatibility, config_rules
from rlfleet_sidecar.checkpoints.config_check import ConfigCheck
from rlfleet_sidecar.checkpoints.folder import Folder, Location
from rlfleet_sidecar.checkpoints.headers import (
    CONFIG,
    SUFFIX,
    Headers,
    content_of,
    index_of,
    invalid,
    refuse_code,
    refuse_unmerged,
)
from rlfleet_sidecar.checkpoints.layouts import Layouts
from rlfleet_sidecar.checkpoints.safe_paths import open_model
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.proof.trainer_probe import TrainerProbe
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.state.required_tensors import RequiredTensors, assumed

FINISHED = ".finished"
STARTED = ".sender_ready"
"""prime-rl's markers: it writes the directory between STARTED and FINISHED."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checked version, with the identity of its files."""

    version: str
    directory: Path
    """Where the engine reads it: the cache, or the trainer's directory."""
    files: tuple[FileStamp, ...]
    tensors: int
    nbytes: int
    digest: str
    """Over all tensors (rlfleet_contract.engine.safetensors.Digest); the engine's must equal it."""
    manifest: str | None = None
    """sha256:HEX of its manifest; None if it has none."""
    probe: TrainerProbe | None = None
    """The answer of the trainer's model, if the manifest has one."""


class Checkpoints:
    """Checks versions against the base model. Blocking: use a thread."""

    def __init__(
        self, settings: SidecarSettings, needs: Callable[[], RequiredTensors | None] = lambda: None
    ) -> None:
        self._settings = settings
        self._needs = needs
        """Returns what the engine reported of its boot; None before that."""
        self.layouts = Layouts.of(settings)
        self._model: Headers | None = None
        self._agreement = ConfigCheck()

    @contextmanager
    def checked(
        self, version: str, *, is_committed: bool = False
    ) -> Iterator[tuple[Folder, Headers]]:
        """Open and check the version; raises SidecarError with the first defect.

        Args:
            version: Its name.
            is_committed: Whether its index, written last, completes it without a marker.

        """
        deadline = time.monotonic() + self._settings.check_s
        model = self.boot_model(deadline)
        with self.opened(version) as folders:
            folder = folders[-1]
            if version == BASE_VERSION:
                yield folder, model
                return
            demand_complete(folders, () if is_committed else self._settings.markers)
            refuse_code(folder, has_modules=config_rules.names_code(model.config))
            refuse_unmerged(folder)
            found = content_of(folder, deadline)
            self._compare(folder.path, model, found, deadline)
            yield folder, found

    def demand_unchanged(self, version: str, files: Sequence[FileStamp]) -> None:
        """Raise if one of the version's files has changed."""
        with self.opened(version) as folders:
            folder = folders[-1]
            for stamp in files:
                with folder.open(stamp.name) as reading:
                    demand_same(folder, stamp, reading.stamp)

    def is_rewritten(self, version: str, files: Sequence[FileStamp]) -> bool:
        """Return whether the version's files have been replaced, or soon will be.

        Missing files were deleted, not rewritten: a trainer keeps only its newest versions.
        Unless other files are the version by now, as after a save in another number of them.
        """
        try:
            with self.opened(version) as folders:
                found = [(stamp, folders[-1].stamp(stamp.name)) for stamp in files]
                is_missing = any(seen is None for _, seen in found)
                if files and _is_in_others(folders[-1], files, is_missing=is_missing):
                    return True
                if FINISHED in self._settings.markers and any(map(_is_begun_again, folders)):
                    return True
        except SidecarError:
            return False
        return any(seen is not None and not is_alike(stamp, seen) for stamp, seen in found)

    @property
    def ties_head(self) -> bool:
        """Whether the engine has reported that its head is its embeddings."""
        needs = self._needs()
        return needs is not None and needs.tied

    def optional(self) -> tuple[str, ...]:
        """Return the base model's tensors that a version may omit."""
        return self._required(self.boot_model()).optional

    def vocabulary(self) -> int:
        """Return the size of the base model's vocabulary."""
        model = self.boot_model()
        if size := compatibility.vocabulary(model.tensors, model.config):
            return size
        raise SidecarError(
            Code.CHECKPOINT_INVALID,
            f"{self._settings.model_path / CONFIG} has no vocab_size; add it",
        )

    @contextmanager
    def opened(self, version: str) -> Iterator[tuple[Folder, ...]]:
        """Open a version's directories from the outermost to the one with the weights."""
        if version == BASE_VERSION:
            with open_model(self._settings.model_path) as folder:
                yield (folder,)
            return
        with self.layouts.open(version, self._settings.engine_uid) as folders:
            yield folders

    def _compare(self, path: Location, model: Headers, found: Headers, deadline: float) -> None:
        why = compatibility.differences(model.tensors, found.tensors, self._required(model))
        if why is not None:
            raise invalid(path, f"does not match the base model: {why}")
        why = self._agreement.objection(model.config, found.config, deadline)
        if why is not None:
            raise invalid(path / CONFIG, f"does not match the base model: {why}")

    def _required(self, model: Headers) -> RequiredTensors:
        return self._needs() or assumed(model.tensors, model.config)

    def boot_model(self, deadline: float | None = None) -> Headers:
        """Return the base model's headers, read once: they do not change during a pod's life."""
        if self._model is None:
            deadline = deadline or time.monotonic() + self._settings.check_s
            with open_model(self._settings.model_path) as folder:
                self._model = content_of(folder, deadline)
        return self._model


def is_marked(folders: Sequence[Folder], markers: Sequence[str]) -> bool:
    """Return whether one of a version's directories holds a marker that counts."""
    return any(_is_marked(folder, name) for folder in folders for name in markers)


def demand_complete(folders: tuple[Folder, ...], markers: Sequence[str]) -> None:
    """Raise unless one of the version's directories holds a marker."""
    if not markers or is_marked(folders, markers):
        return
    for folder in folders:
        if FINISHED in markers and _is_begun_again(folder):
            raise SidecarError(
                Code.CHECKPOINT_INCOMPLETE,
                f"{folder.path / FINISHED} is older than {STARTED}: the version is being"
                " written again; wait until it is complete",
            )
    raise SidecarError(
        Code.CHECKPOINT_INCOMPLETE,
        f"{folders[-1].path} has no marker ({' or '.join(markers)}): it is not complete, or its"
        " trainer writes none; write the marker last",
    )


def demand_same(folder: Folder, checked: FileStamp, seen: FileStamp) -> None:
    """Raise if a file is not the checked one."""
    if seen != checked:
        raise invalid(
            folder.path / checked.name,
            "was written again after its check; keep a version's directory unchanged, and prepare"
            " it again",
        )


def is_alike(one: FileStamp, other: FileStamp) -> bool:
    """Return whether two stamps are of one file; a remount may change the device."""
    return one.model_copy(update={"device": other.device}) == other


def _is_marked(folder: Folder, name: str) -> bool:
    is_there = folder.modified_ns(name) is not None
    return is_there and not (name == FINISHED and _is_begun_again(folder))


def _is_begun_again(folder: Folder) -> bool:
    """Return whether prime-rl has begun to write a finished directory again."""
    started, finished = folder.modified_ns(STARTED), folder.modified_ns(FINISHED)
    return started is not None and finished is not None and started > finished


def _is_in_others(folder: Folder, files: Sequence[FileStamp], *, is_missing: bool) -> bool:
    """Return whether a directory's checkpoint is in other files, written after these.

    By the index if there is one. Without one, other files count only if one of these is missing.
    """
    names = folder.names()
    index = index_of(folder, names)
    if index is None and not is_missing:
        return False
    weights = {name for name in names if name.endswith(SUFFIX)} if index is None else index.values()
    others = set(weights) - {stamp.name for stamp in files}
    last = max(stamp.mtime_ns for stamp in files)
    return any((folder.modified_ns(name) or 0) > last for name in others)
