"""Caches that a change keeps, on real vLLM whose start has seen no request without a salt.

Other tests send such to the worker that they share, and from then on each change of that
start empties the caches, whatever kvCache says.
"""

import pytest

from dev.shell import Shell
from tests.contract.samplers.test_cache_salts import (  # noqa: F401
    prompt,
    test_the_same_salt_does_not_hit_what_another_version_computed,
)
from tests.e2e.kills import kill_engine_core
from tests.e2e.scenario import Fleet, restarts

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]


@pytest.fixture(autouse=True)
def restarted(solo: Fleet, shell: Shell) -> None:
    """Have the engine start again."""
    name = f"{solo.name}-0"
    before = restarts(solo.pods()[name])
    kill_engine_core(shell, name)
    solo.wait_restarted(name, before)
    solo.wait_synced()
