"""How a version stands in a pod's label: a label holds at most 63 characters, a version 128."""

import hashlib

LABEL_CHARACTERS = 63
"""What Kubernetes lets a label's value have."""
_DIGITS = 10
_KEPT = LABEL_CHARACTERS - 1 - _DIGITS


def label_of(version: str | None) -> str | None:
    """Return the label's value for a version; None, for no version, removes the label.

    A longer version keeps its beginning, and digits of its digest tell it from others.
    What may occur in a version may occur in a label, at its ends too.
    """
    if version is None or len(version) <= LABEL_CHARACTERS:
        return version
    digest = hashlib.sha256(version.encode()).hexdigest()
    return f"{version[:_KEPT]}-{digest[:_DIGITS]}"
