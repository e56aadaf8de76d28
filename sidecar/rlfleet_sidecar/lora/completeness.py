"""Is an adapter without a marker complete? By its own signs. Blocking: use a thread.

PEFT, and so TRL and SkyRL, leave no marker: they write the tensors, then the configuration, and
then call. It must stay true that such files are taken only if the configuration is there, the
tensors' header accounts for every byte, and nothing has changed between two looks; and never in a
directory that bears prime-rl's mark of one that is being written.
"""

import time
from typing import NamedTuple

from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_sidecar.checkpoints.check import STARTED
from rlfleet_sidecar.checkpoints.headers import header_of
from rlfleet_sidecar.checkpoints.safe_paths import Folder
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.lora import compatibility

TENSORS = "adapter_model.safetensors"
CALLED_S = 0.4
"""How long files must stand still that a trainer's call names: the call itself says that they
are written."""
DECLARED_S = 5.0
"""The same of files that the spec names: nothing says when they are written."""


class _Look(NamedTuple):
    path: str
    files: tuple[FileStamp, FileStamp]
    since: float
    """By the monotonic clock."""


class Settled:
    """Remembers the last look: commands about adapters come one after the other."""

    def __init__(self) -> None:
        self._last: _Look | None = None

    def is_settled(self, folders: tuple[Folder, ...], rest_s: float, deadline: float) -> bool:
        """Tell whether an adapter is whole and has stood still for so many seconds."""
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


def _whole(folder: Folder, deadline: float) -> tuple[FileStamp, FileStamp] | None:
    config = folder.stamp(compatibility.CONFIG)
    try:
        tensors, _ = header_of(folder, TENSORS, deadline)
    except (SidecarError, OSError):
        return None
    return None if config is None or not config.size else (config, tensors)
