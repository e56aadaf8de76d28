"""How versions are published."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlfleet.publish import encode, layout
from rlfleet.publish.errors import PublishError

_SHARD = 4 * 2**30
AUTO = "auto"
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""What workers accept in the pointer: they would reject every version of another run."""
_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a trainer may choose; raises PublishError for what it may not."""

    snapshot: Path | str | None = None
    """Directory for the last version's bytes, so that a restarted trainer continues with deltas;
    in memory without one."""
    run: str = ""
    """With a name, versions lie in `updates/`, and `latest` names the newest (Stitch's store)."""
    base: Path | str | None = None
    """The model that engines boot with: version 0, so that the first version is a delta."""
    files: Path | str | None = None
    """Directory of configuration and tokenizer for full versions; by default `base`."""
    anchor_every: int = 0
    """Each so many versions one is full; 0: only where no delta is possible."""
    encoding: str = AUTO
    """`xor`, `overwrite`, or `auto`: for each version the smaller."""
    checksum: str = "xxh3-128"
    """Of each changed tensor; or `blake3`."""
    threads: int = 4
    """So many compress a large tensor."""
    shard_nbytes: int = _SHARD
    """Tensors share a file up to this size."""
    marker: str = layout.MARKER
    """Empty file that a full version has too; "" for none."""
    store: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of obstore.store.from_url: credentials, endpoint, retries."""

    def __post_init__(self) -> None:
        """Check what has few values."""
        _demand("encoding", self.encoding, [AUTO, encode.XOR, encode.OVERWRITE])
        _demand("checksum", self.checksum, list(encode.CHECKSUMS))
        if self.run and _RUN.fullmatch(self.run) is None:
            raise PublishError(
                f"run is {self.run[:_SHOWN]!r} (expected a letter or digit, then letters, digits,"
                " . _ -, at most 128); rename it"
            )
        for what, least in (("anchor_every", 0), ("threads", 0), ("shard_nbytes", 1)):
            if getattr(self, what) < least:
                raise PublishError(f"{what} is {getattr(self, what)} (expected {least} or more)")

    def encodings(self) -> tuple[str, ...]:
        """Return the encodings to try."""
        return (encode.XOR, encode.OVERWRITE) if self.encoding == AUTO else (self.encoding,)


def _demand(what: str, found: str, allowed: list[str]) -> None:
    if found not in allowed:
        raise PublishError(f"{what} is {found!r} (expected {', '.join(allowed)})")
