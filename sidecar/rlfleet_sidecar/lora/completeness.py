"""Is an adapter without a marker complete? Blocking: use a thread.

PEFT, and so TRL and SkyRL, write no marker: they write the tensors, then the configuration, and
then call. It must stay true that such files are accepted only with a configuration, a header of
the tensors that describes every byte, and no change between two checks; and never in a directory
with prime-rl's marker of a write under way.
"""

import time
from typing import NamedTuple

from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.checkpoints.check import STARTED
from rlfleet_sidecar.checkpoints.headers import header_of
from rlfleet_sidecar.checkpoints.safe_paths import OpenFolder
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.lora import compatibility

TENSORS = "adapter_model.safetensors"
CALLED_S = 0.4
"""How long files of a trainer's call must be unchanged; the call shows that they are written."""
DECLARED_S = 5.0
"""The same for files in the spec, whose trainer may still write them."""
_NEVER_READ = {Code.CHECKPOINT_UNREADABLE, Code.PATH_REFUSED}


class _Look(NamedTuple):
    path: str
    files: tuple[FileStamp, FileStamp]
    since: float
    """On the monotonic clock."""


class CompletenessCheck:
    """Keeps the last check; commands for adapters run one after the other."""

    def __init__(self) -> None:
        self._last: _Look | None = None

    def is_settled(self, folders: tuple[OpenFolder, ...], rest_s: float, deadline: float) -> bool:
        """Return whether an adapter is complete and unchanged for ``rest_s`` seconds.

        Raises SidecarError for files that must not or cannot be read: no wait mends them.
        """
        folder = folders[-1]
        files = None if any(one.stamp(STARTED) for one in folders) else _whole(folder, deadline)
        if files is None:
            self._last = None
            return False
        path, now, last = str(folder.path), time.monotonic(), self._last
        if last is None or (last.path, last.files) != (path, files):
            self._last = _Look(path, files, now)
            return False
        return now - last.since >= rest_s


def _whole(folder: OpenFolder, deadline: float) -> tuple[FileStamp, FileStamp] | None:
    config = folder.stamp(compatibility.CONFIG)
    try:
        tensors, _ = header_of(folder, TENSORS, deadline)
    except SidecarError as error:
        if error.code in _NEVER_READ:
            raise
        return None
    except OSError:
        return None
    return None if config is None or not config.size else (config, tensors)
