"""The sidecar's contract suite again, on a real worker: ``subject`` is this folder's.

Left out are the tests that must pause one request before it ends by itself: a tiny model
on a quiet machine ends it first. test_rollout.py shows the same under a steady load.
"""

import pytest

from tests.contract.test_traffic import (  # noqa: F401
    test_a_client_that_leaves_while_it_waits_is_forgotten,
    test_a_reply_names_the_version_whose_weights_made_it,
    test_requests_during_a_pause_wait_and_are_answered_by_the_new_weights,
)
from tests.contract.test_verbs import *  # noqa: F403

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
