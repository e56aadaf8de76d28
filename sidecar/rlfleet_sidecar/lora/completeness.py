"""Is an adapter without a marker complete? Blocking: use a thread.

PEFT, and so TRL and SkyRL, write no marker: they write the tensors, then the configuration, and
then call. It must stay true that such files are accepted only with a configuration, a header of
the tensors that describes every byte, and no change between two checks; and never in a directory
with prime-rl's marker of a write under way.
"""

import time
from typing import NamedTuple

from rlfleet_contract.engine.safetensors import FileStamp, Tensor
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.checkpoints.check import STARTED
from rlfleet_sidecar.checkpoints.headers import SUFFIX, header_of, invalid
from rlfleet_sidecar.checkpoints.safe_paths import OpenFolder
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.lora import compatibility

TENSORS = "adapter_model.safetensors"
_CHANGING = "its files still change"
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

    def objection(
        self, folders: tuple[OpenFolder, ...], rest_s: float, deadline: float
    ) -> str | None:
        """Return why an adapter is not complete and unchanged for ``rest_s`` seconds, or None.

        Raises SidecarError for files that must not or cannot be read: no wait mends them.
        """
        folder = folders[-1]
        found = _writing(folders) or _whole(folder, deadline)
        if isinstance(found, str):
            self._last = None
            return found
        path, now, last = str(folder.path), time.monotonic(), self._last
        if last is None or (last.path, last.files) != (path, found):
            self._last = _Look(path, found, now)
            return _CHANGING
        return None if now - last.since >= rest_s else _CHANGING


def _writing(folders: tuple[OpenFolder, ...]) -> str | None:
    begun = next((one.path for one in folders if one.stamp(STARTED)), None)
    return None if begun is None else f"{begun / STARTED} says that it is being written"


def _whole(folder: OpenFolder, deadline: float) -> tuple[FileStamp, FileStamp] | str:
    """Return the stamps of an adapter's two files, or what is wrong with them."""
    config = folder.stamp(compatibility.CONFIG)
    if config is None or not config.size:
        return f"{folder.path / compatibility.CONFIG} does not exist or is empty; write it"
    try:
        tensors, _ = tensors_of(folder, deadline)
    except SidecarError as error:
        if error.code in _NEVER_READ:
            raise
        return error.message
    except OSError as error:
        return f"failed to read {folder.path / TENSORS}: {error.strerror or error}"
    return config, tensors


def tensors_of(folder: OpenFolder, deadline: float) -> tuple[FileStamp, tuple[Tensor, ...]]:
    """Return the stamp and the tensors of the one file that vLLM reads."""
    others = [name for name in folder.names() if name.endswith(SUFFIX)]
    if others and TENSORS not in others:
        raise invalid(
            folder.path / TENSORS,
            f"does not exist, and vLLM does not read {others[0]}; save the adapter as one file of"
            " that name, as PEFT's save_pretrained does",
        )
    return header_of(folder, TENSORS, deadline)
