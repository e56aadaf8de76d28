"""The vLLM releases that passed rlfleet's test suites.

`make matrix` runs them and writes docs/reference/compatibility.md. An engine of another release
may serve too: the sidecar's self-test checks its reload at each boot, and status shows that the
release is untested.
"""

TESTED = ("0.29.", "0.30.", "0.31.", "0.32.", "0.33.")
"""Prefixes of the releases that passed the contract suite and an end-to-end run."""


def is_tested(release: str) -> bool:
    """Return whether a release starts with one of these prefixes."""
    return release.startswith(TESTED)
