"""Whether a failed load was the exit of a rank, by what another call of the ranks says."""

from collections.abc import Sequence
from typing import Any

import pytest

from rlfleet_sidecar.change.ranks import have_ranks_exited
from rlfleet_sidecar.errors import EngineFailedError

_SAID = "/collective_rpc returned 500: Executor failed."


class Rankless:
    """Fails each call of the ranks."""

    async def describe(self, kinds: Sequence[str]) -> None:
        raise EngineFailedError(f"{_SAID}{''.join(kinds)}")


@pytest.mark.parametrize(
    ("failure", "is_exit"),
    [(f"ReloadFailed: {_SAID}", True), ("/collective_rpc returned 500: size mismatch", False)],
)
async def test_a_call_that_fails_otherwise_than_the_load_is_no_exit(
    failure: str, *, is_exit: bool
) -> None:
    engine: Any = Rankless()

    assert await have_ranks_exited(engine, failure, 5) is is_exit
