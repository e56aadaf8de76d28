"""Which vLLM releases rlfleet's own suites ran against.

`make matrix` runs them and writes docs/reference/compatibility.md. Any other release is no
reason to refuse an engine: what it does to weights is tested when it boots (the sidecar's
self-test), and the fleet says that its release is untested.
"""

TESTED = ("0.29.", "0.30.", "0.31.", "0.32.")
"""Beginnings of the releases that the contract suite and an end-to-end run passed on."""


def is_tested(release: str) -> bool:
    """Tell whether a release is one of them."""
    return release.startswith(TESTED)
