"""Work in a forked process that dies at a chosen moment, as a killed one does."""

import os
from collections.abc import Callable

DEATH = 9
"""The status of a process that died where it was told to."""


def dies(work: Callable[[], object], watch: Callable[[], None]) -> bool:
    """Run work in a fork, after ``watch``, which may exit by DEATH; return whether it did."""
    child = os.fork()
    if child == 0:
        watch()
        try:
            work()
        except BaseException:  # noqa: BLE001 - the parent sees another status
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in {0, DEATH}
    return status == DEATH
