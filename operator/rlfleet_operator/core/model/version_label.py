"""The label of a version: its name (at most 128 characters) in a label's value (at most 63)."""

import hashlib

LABEL_CHARACTERS = 63
"""Kubernetes' limit for the value of a label."""
_DIGITS = 10
_KEPT = LABEL_CHARACTERS - 1 - _DIGITS


def label_of(version: str | None) -> str | None:
    """Return the label's value for a version; None removes the label.

    A longer version keeps its beginning and gets digits of its digest, which make it unique.
    Every character that a version may hold is valid in a label, also as the first and last.
    """
    if version is None or len(version) <= LABEL_CHARACTERS:
        return version
    digest = hashlib.sha256(version.encode()).hexdigest()
    return f"{version[:_KEPT]}-{digest[:_DIGITS]}"


def version_of(label: str | None) -> str | None:
    """Return the version that a label names; None if it may be shortened."""
    return label if label is None or len(label) < LABEL_CHARACTERS else None
