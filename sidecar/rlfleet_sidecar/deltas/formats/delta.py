"""A published delta, as all formats describe it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class BadDeltaError(ValueError):
    """A delta that is malformed; the message says why."""


class TornDeltaError(ValueError):
    """A delta that is not complete yet, because its publisher or a copy is under way."""


class Encoding(StrEnum):
    """What a fragment contains."""

    XOR = "xor"
    """The new bytes of a tensor XOR the old ones."""
    OVERWRITE = "overwrite"
    """The places of the changed bytes, then the new ones."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """The change of one tensor in one version: a zstd frame in a file."""

    tensor: str
    file: str
    begin: int
    """Offset of the frame in its file."""
    nbytes: int
    encoding: Encoding
    algorithm: str
    """Of its checksum."""
    checksum: str
    """Over all bytes of the new tensor."""
    dtype: str | None = None
    """Of the tensor, where the format says it."""
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """What a version changes of the version before it."""

    number: int
    parent: int
    """The number of the version that it changes."""
    fragments: Mapping[str, Fragment] = field(repr=False)
    """By tensor."""
    skips_unknown: bool = False
    """Whether the head is left out if the base model has none: it is tied to the embeddings."""
