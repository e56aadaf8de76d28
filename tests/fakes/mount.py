"""A mounted Secret, replaced as a kubelet replaces one (its AtomicWriter).

Each key is a link through ``..data``, which one rename points to a new folder of files. The old
folder goes afterwards, so a reader that found its way before may meet a file that is gone.
"""

import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

_CURRENT = "..data"


def mount(folder: Path, data: Mapping[str, str]) -> None:
    """Make the files of ``folder`` those of the Secret; other files stay."""
    current = folder / _CURRENT
    old = current.resolve() if current.is_symlink() else None
    made = folder / f"..{secrets.token_hex(8)}"
    made.mkdir()
    for key, value in data.items():
        (made / key).write_text(value)
    unfinished = folder / "..data_tmp"
    unfinished.symlink_to(made.name)
    unfinished.replace(current)
    for key in data:
        link = folder / key
        if not link.is_symlink():
            link.symlink_to(Path(_CURRENT) / key)
    if old is not None:
        for file in old.iterdir():
            if file.name not in data:
                (folder / file.name).unlink()
        shutil.rmtree(old)
