"""Is this version whole and loadable? Asked of headers alone, before anything is paused.

vLLM accepts some bad checkpoints silently and dies of the others, so it must stay true
that what passes here holds exactly the boot model's tensors, in safetensors files whose
headers account for every byte. No tensor is read here: cache/staging.py does that.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.checkpoints import compatibility
from rlfleet_sidecar.checkpoints.config_check import Agreement
from rlfleet_sidecar.checkpoints.headers import CONFIG, Content, content_of, invalid, refuse_code
from rlfleet_sidecar.checkpoints.layouts import Layouts
from rlfleet_sidecar.checkpoints.safe_paths import Folder, open_model
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.proof.trainer_probe import TrainerProbe
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.state.required_tensors import Needs, assumed

_FINISHED = ".finished"
STARTED = ".sender_ready"
"""prime-rl's marks: the directory is written anew between the second and the first."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A version that was checked and read, and exactly which files it is."""

    version: str
    directory: Path
    """Where the engine reads it: staged, or in the trainer's own directory."""
    files: tuple[FileStamp, ...]
    tensors: int
    nbytes: int
    digest: str
    """Over all tensors (rlfleet_contract.engine.safetensors.Digest), as the engine tells it too."""
    manifest: str | None = None
    """sha256:HEX of the manifest that its files were compared with; None if it has none."""
    probe: TrainerProbe | None = None
    """What the trainer's own model answers, if its manifest says so."""


class Checkpoints:
    """Checks versions against the model that the engine boots with. Blocking: use a thread."""

    def __init__(
        self, settings: SidecarSettings, needs: Callable[[], Needs | None] = lambda: None
    ) -> None:
        self._settings = settings
        self._needs = needs
        """Tells what the engine said of its boot; None while it has not."""
        self._layouts = Layouts.of(settings)
        self._model: Content | None = None
        self._agreement = Agreement()

    @contextmanager
    def checked(self, version: str) -> Iterator[tuple[Folder, Content]]:
        """Open the version and check it; raises what is wrong and what to do."""
        deadline = time.monotonic() + self._settings.check_s
        model = self.boot_model(deadline)
        if version == BASE_VERSION:
            with open_model(self._settings.model_path) as folder:
                yield folder, model
            return
        with self._layouts.open(version, self._settings.engine_uid) as folders:
            demand_complete(folders, self._settings.markers)
            folder = folders[-1]
            refuse_code(folder)
            found = content_of(folder, deadline)
            self._compare(folder.path, model, found, deadline)
            yield folder, found

    def demand_unchanged(self, version: str, files: Sequence[FileStamp]) -> None:
        """See that the version's own files still are these."""
        with self._opened(version) as folders:
            folder = folders[-1]
            for stamp in files:
                with folder.open(stamp.name) as reading:
                    demand_same(folder, stamp, reading.stamp)

    def is_rewritten(self, version: str, files: Sequence[FileStamp]) -> bool:
        """Tell whether other files stand under the version's name by now, or will soon.

        Files that are gone were deleted, not rewritten: a trainer keeps the newest versions.
        """
        try:
            with self._opened(version) as folders:
                found = [(stamp, folders[-1].stamp(stamp.name)) for stamp in files]
                if _FINISHED in self._settings.markers and any(map(_is_begun_anew, folders)):
                    return True
        except SidecarError:
            return False
        return any(seen is not None and not is_alike(stamp, seen) for stamp, seen in found)

    def vocabulary(self) -> int:
        """Tell how many tokens the model knows."""
        model = self.boot_model(time.monotonic() + self._settings.check_s)
        text = model.config.get("text_config")
        for place in (model.config, text if isinstance(text, dict) else {}):
            size = place.get("vocab_size")
            if isinstance(size, int) and size > 0:
                return size
        # Left to the class: only transformers knows it, and the embeddings show it.
        if size := compatibility.vocabulary(model.tensors):
            return size
        raise SidecarError(
            Code.CHECKPOINT_INVALID, f"{self._settings.model_path / CONFIG} has no vocab_size"
        )

    def boot_names(self) -> frozenset[str]:
        """Tell the names of the boot model's tensors."""
        return frozenset(self.boot_model(time.monotonic() + self._settings.check_s).tensors)

    @contextmanager
    def _opened(self, version: str) -> Iterator[tuple[Folder, ...]]:
        if version == BASE_VERSION:
            with open_model(self._settings.model_path) as folder:
                yield (folder,)
            return
        with self._layouts.open(version, self._settings.engine_uid) as folders:
            yield folders

    def _compare(self, path: Path, model: Content, found: Content, deadline: float) -> None:
        needs = self._needs() or assumed(model.tensors, model.config)
        told = compatibility.differences(model.tensors, found.tensors, needs)
        if told is not None:
            raise invalid(path, f"is not a checkpoint of the boot model: {told}")
        told = self._agreement.objection(model.config, found.config, deadline)
        if told is not None:
            raise invalid(path / CONFIG, f"does not go with the boot model: {told}")

    def deadline(self) -> float:
        """Return until when a check that begins now may take, by the monotonic clock."""
        return time.monotonic() + self._settings.check_s

    def boot_model(self, deadline: float) -> Content:
        """Read the boot model's headers once: it does not change while the pod lives."""
        if self._model is None:
            with open_model(self._settings.model_path) as folder:
                self._model = content_of(folder, deadline)
        return self._model


def demand_complete(folders: tuple[Folder, ...], markers: Sequence[str]) -> None:
    """Look for a marker beside the weights or in a directory of the version above them."""
    if not markers or any(_is_marked(folder, name) for folder in folders for name in markers):
        return
    for folder in folders:
        if _FINISHED in markers and _is_begun_anew(folder):
            raise SidecarError(
                Code.CHECKPOINT_INCOMPLETE,
                f"{folder.path / _FINISHED} is older than {STARTED}: the version is being"
                " written again",
            )
    raise SidecarError(
        Code.CHECKPOINT_INCOMPLETE,
        f"{folders[-1].path} has no marker {' or '.join(markers)}: it is still being"
        " written, or its writer leaves none",
    )


def demand_same(folder: Folder, checked: FileStamp, seen: FileStamp) -> None:
    """See that a file is the one that was checked."""
    if seen != checked:
        raise invalid(
            folder.path / checked.name,
            "was written again after it was checked: a version's directory must not change;"
            " prepare it anew",
        )


def is_alike(one: FileStamp, other: FileStamp) -> bool:
    """Tell whether two stamps are of one file; a remount may change the device."""
    return one.model_copy(update={"device": other.device}) == other


def _is_marked(folder: Folder, name: str) -> bool:
    is_there = folder.modified_ns(name) is not None
    return is_there and not (name == _FINISHED and _is_begun_anew(folder))


def _is_begun_anew(folder: Folder) -> bool:
    """Tell whether prime-rl began to write a directory again that it had finished."""
    started, finished = folder.modified_ns(STARTED), folder.modified_ns(_FINISHED)
    return started is not None and finished is not None and started > finished
