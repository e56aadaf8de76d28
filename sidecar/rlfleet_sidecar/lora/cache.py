"""Checks adapters and keeps the worker's copies of them. Blocking: use a thread.

It must stay true that a directory in use by the engine never changes, and that no two
contents have the same one: vLLM reads an adapter again when its memory for adapters was too
small for all, and its prefix cache identifies one by name and directory. So a copy's
directory has its digest as name; without a cache, a rewritten directory is rejected.
"""

import logging
import os
import re
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from rlfleet_contract.engine.safetensors import SHA256, FileStamp
from rlfleet_contract.paths import ADAPTER_PATTERN
from rlfleet_contract.worker.lora import LoadAdapterRequest
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.cache import eviction
from rlfleet_sidecar.cache.entries import Entries
from rlfleet_sidecar.checkpoints import config_rules
from rlfleet_sidecar.checkpoints.check import Checkpoints, demand_complete, demand_same, is_alike
from rlfleet_sidecar.checkpoints.headers import (
    Headers,
    bytes_of,
    invalid,
    parsed,
    refuse_code,
)
from rlfleet_sidecar.checkpoints.manifest import manifest_of
from rlfleet_sidecar.checkpoints.safe_paths import Layout, OpenFolder, stamp_of
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.lora import compatibility
from rlfleet_sidecar.lora.completeness import (
    CALLED_S,
    DECLARED_S,
    TENSORS,
    CompletenessCheck,
    tensors_of,
)
from rlfleet_sidecar.lora.registry import LoRACopy
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.staging.prepare_job import PrepareJob
from rlfleet_sidecar.staging.staging import Staging
from rlfleet_sidecar.timeouts import Glance

_DIGITS = 32
_MODEL = "%model"
"""No adapter can have this name."""
_KEPT = 8
"""Copies of a name, and of names that were unloaded. Long requests may use an earlier one, and
vLLM exits if it must read again an adapter that is gone."""
Served = Callable[[], frozenset[Path]]
_log = logging.getLogger(__name__)


class LoRACache:
    """The checked adapters."""

    def __init__(
        self, settings: SidecarSettings, checkpoints: Checkpoints, glance: Glance | None = None
    ) -> None:
        self._settings = settings
        self._checkpoints = checkpoints
        self._root = Layout.of(settings.weights_path).root
        self._entries: Entries[LoRACopy] | None = None
        self._glance = glance or Glance()
        self._copies: list[LoRACopy] = []
        """The oldest first; an abandoned thread may wake while another copies."""
        self._changing = threading.Lock()
        self._settled = CompletenessCheck()
        if settings.cache_dir is not None:
            # Trusted after a restart of the node too.
            self._entries = Entries(settings.cache_dir / "adapters", LoRACopy, lasting=True)
            self._copies = self._entries.swept(_is_trusted)

    def nbytes(self) -> int:
        """Return the bytes of all copies in the cache, those under way included."""
        drafted = 0 if self._entries is None else self._entries.drafted
        return drafted + sum(copy.nbytes for copy in self._copies)

    def known(self, request: LoadAdapterRequest) -> LoRACopy | None:
        """Return the copy of this version; the trainer may have deleted its own files since."""
        for copy in reversed(self._copies):
            is_it = (copy.name, copy.version, str(copy.source)) == (
                request.name,
                request.version,
                request.path,
            )
            if is_it:
                is_other = self._is_rewritten(copy, is_called=request.fence is None)
                return copy if is_whole(copy) and not is_other else None
        return None

    def take(
        self,
        request: LoadAdapterRequest,
        work: PrepareJob,
        free: Callable[[int], int],
        served: Served = frozenset,
    ) -> LoRACopy:
        """Check an adapter, read and copy it; raises SidecarError with its defect.

        Args:
            request: The adapter.
            work: Its progress and cancellation.
            free: Returns the cache's free bytes for a draft of so many.
            served: Returns the directories in use by the engine, which stay.

        """
        found = self.known(request)
        if found is not None:
            self._renew(found)
            return found
        with self._layout(request.path).open("", self._settings.engine_uid) as folders:
            # No wait mends it.
            base = self._checkpoints.boot_model()
            refuse_code(folders[-1], has_modules=config_rules.names_code(base.config))
            self._demand_complete(folders, request)
            return self._read(folders[-1], request, work, free, served)

    def _demand_complete(
        self, folders: tuple[OpenFolder, ...], request: LoadAdapterRequest
    ) -> None:
        """Raise unless an adapter is complete, by a marker or by its files."""
        try:
            demand_complete(folders, self._settings.markers)
        except SidecarError as error:
            rest_s = CALLED_S if request.fence is None else DECLARED_S
            deadline = time.monotonic() + self._settings.check_s
            if why := self._settled.objection(folders, rest_s, deadline):
                raise SidecarError(
                    error.code, f"{error.message}; without a marker: {why}"
                ) from error

    def is_adapter(self, path: str) -> bool:
        """Return whether a directory contains an adapter's configuration; False if unreadable."""
        try:
            with self._layout(path.rstrip("/")).open("", self._settings.engine_uid) as folders:
                return folders[-1].stamp(compatibility.CONFIG) is not None
        except (SidecarError, OSError):
            return False

    def _layout(self, path: str) -> Layout:
        if "\0" in path:
            raise SidecarError(Code.INVALID_REQUEST, "path: has a NUL character; remove it")
        parts = Path(path).parts[len(self._root.parts) :]
        is_beneath = Path(path).is_relative_to(self._root) and parts and ".." not in parts
        if not is_beneath or os.path.normpath(path) != path:
            raise SidecarError(
                Code.PATH_REFUSED,
                f"{path:.300} is not beneath {self._root}, the root of this worker's weights; move"
                " it there",
            )
        return Layout(self._root, parts)

    def _renew(self, copy: LoRACopy) -> None:
        """Make a copy that is used again the newest one, after a restart too."""
        with self._changing:
            self._copies = [other for other in self._copies if other is not copy] + [copy]
        if self._entries is not None:
            self._entries.touch(copy.directory.name)

    def _read(
        self,
        folder: OpenFolder,
        request: LoadAdapterRequest,
        work: PrepareJob,
        free: Callable[[int], int],
        served: Served,
    ) -> LoRACopy:
        content, stamp, data = self._content(folder)
        sources = (stamp, *content.files)
        staging = Staging(content, manifest_of(folder, content, None), work, SHA256)

        def read(draft: Path | None) -> LoRACopy:
            tensors = staging.of_folder(folder, draft)
            seen = folder.stamp(compatibility.CONFIG)
            demand_same(folder, stamp, seen or content.files[0])
            work.demand_wanted()
            return LoRACopy(
                name=request.name,
                version=request.version,
                source=Path(request.path),
                directory=Path(request.path),
                digest=sha256(tensors.encode() + data).hexdigest(),
                sources=sources,
                files=sources,
            )

        if self._entries is None:
            return self._in_place(read(None))
        nbytes = eviction.footprint([source.size for source in sources])
        with self._entries.draft(nbytes) as draft:
            with self._changing:
                # What was served when a thread began to hang says nothing when it wakes.
                work.demand_wanted()
                self._make_room(self._entries, request.name, nbytes, free(nbytes), served())
            (draft / compatibility.CONFIG).write_bytes(data)
            found = read(draft)
            with self._changing:
                return self._admit(self._entries, draft, found, nbytes)

    def _content(self, folder: OpenFolder) -> tuple[Headers, FileStamp, bytes]:
        """Check headers and configuration; returns both, with the latter's stamp and bytes."""
        deadline = time.monotonic() + self._settings.check_s
        stamp = folder.stamp(compatibility.CONFIG)
        data = bytes_of(folder, compatibility.CONFIG)
        config = parsed(folder.path / compatibility.CONFIG, data)
        why = compatibility.config_objection(config)
        if why is None and not _scales_each_module():
            why = compatibility.scaling_objection(config)
        if why is not None:
            raise invalid(folder.path / compatibility.CONFIG, f"is not supported: {why}")
        tensors, found = tensors_of(folder, deadline)
        content = Headers((tensors,), {tensor.name: tensor for tensor in found}, config)
        model = self._checkpoints.boot_model(deadline).tensors
        if why := compatibility.objection(config, content.tensors, model):
            raise invalid(folder.path / TENSORS, f"does not match the base model: {why}")
        if stamp is None:
            raise invalid(folder.path / compatibility.CONFIG, "was deleted during the check")
        return content, stamp, data

    def _in_place(self, copy: LoRACopy) -> LoRACopy:
        source = copy.source
        with self._changing:
            if any(one.directory == source and one.digest != copy.digest for one in self._copies):
                raise invalid(
                    source,
                    "was already loaded with other content; give each version its own directory, or"
                    " enable spec.weights.cache",
                )
            self._copies.append(copy)
        return copy

    def _admit(
        self, entries: Entries[LoRACopy], draft: Path, found: LoRACopy, nbytes: int
    ) -> LoRACopy:
        """Make a finished draft a copy; the same content under the same name is stored once."""
        directory = entries.root / f"{_folder(found.name)}.{found.digest[:_DIGITS]}"
        same = next((copy for copy in self._copies if copy.directory == directory), None)
        if same is not None and not is_whole(same):
            raise invalid(directory, "was modified in the cache; delete the pod")
        made = tuple(stamp_of(one.name, (draft / one.name).lstat()) for one in found.sources)
        files = made if same is None else same.files
        copy = found.model_copy(update={"directory": directory, "files": files, "nbytes": nbytes})
        if same is None:
            entries.touch(draft.name)
            entries.admit(draft, directory.name, copy)
        self._copies = [other for other in self._copies if other is not same] + [copy]
        _log.info("Adapter copied", extra={"adapter": copy.name, "version": copy.version})
        return copy

    def _make_room(
        self,
        entries: Entries[LoRACopy],
        name: str,
        nbytes: int,
        free: int,
        served: frozenset[Path],
    ) -> None:
        """Drop old copies of this name, and of names no longer loaded, that are not served."""
        own = [copy for copy in self._copies if copy.name == name]
        left = self._unloaded(served | {copy.directory for copy in own})
        kept = (*own[1 - _KEPT :], *left[1 - _KEPT :])
        in_use = served.union(copy.directory for copy in kept)
        staged = [eviction.StagedCopy(copy.directory, copy.nbytes) for copy in (*own, *left)]
        gone = eviction.evictions(staged, in_use, nbytes, free)
        if gone is None:
            raise SidecarError(
                Code.CACHE_FULL,
                f"cache too small for adapter {name} ({nbytes} bytes, {free} free); raise"
                " spec.weights.cache.size",
            )
        self._copies = [copy for copy in self._copies if copy.directory not in gone]
        for directory in gone:
            entries.drop(directory.name)

    def _unloaded(self, loaded: frozenset[Path]) -> list[LoRACopy]:
        """Return the copies of names of which none of these directories is."""
        names = {copy.name for copy in self._copies if copy.directory in loaded}
        return [copy for copy in self._copies if copy.name not in names]

    def _is_rewritten(self, copy: LoRACopy, *, is_called: bool) -> bool:
        """Return whether its source has other files by now; missing ones were deleted.

        A trainer that calls means what its directory holds now, however slow the volume is.
        An operator repeats what the spec or other workers have, which a volume that does not
        answer must not stop.
        """

        def look() -> bool:
            try:
                with self._layout(str(copy.source)).open("", self._settings.engine_uid) as folders:
                    found = [(stamp, folders[-1].stamp(stamp.name)) for stamp in copy.sources]
            except SidecarError:
                return False
            return any(seen is not None and not is_alike(stamp, seen) for stamp, seen in found)

        # Without a cache the engine reads that directory.
        is_waited_for = is_called or self._entries is None
        return look() if is_waited_for else self._glance.sees(look)


def is_whole(copy: LoRACopy) -> bool:
    """Return whether a copy's files are unchanged."""
    try:
        return all(
            is_alike(stamp, stamp_of(stamp.name, (copy.directory / stamp.name).lstat()))
            for stamp in copy.files
        )
    except OSError:
        return False


def _scales_each_module() -> bool:
    """Return whether the installed vLLM applies an adapter's patterns; False if none is known."""
    found = find_spec("vllm")
    for folder in (found and found.submodule_search_locations) or ():
        helper = Path(folder) / "lora" / "peft_helper.py"
        if helper.is_file():
            return "alpha_pattern" in helper.read_text(encoding="utf-8")
    return False


def _folder(name: str) -> str:
    """Return the directory of a name's copies; the model's name may contain slashes."""
    return name if re.fullmatch(ADAPTER_PATTERN, name) else _MODEL


def _is_trusted(entry: Path, copy: LoRACopy) -> bool:
    return copy.directory == entry and is_whole(copy)
