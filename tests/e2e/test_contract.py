"""The sidecar's contract suite again, on a real worker: ``subject`` is this folder's.

Left out are the tests that must pause one request before it ends by itself: a tiny model
on a quiet machine ends it first. test_rollout.py shows the same under a steady load.
"""

import pytest

from tests.contract.test_salts import (  # noqa: F401
    prompt,
    test_a_salt_is_one_salt_wherever_clients_put_it,
    test_a_salt_that_is_no_text_is_refused_by_its_name,
    test_the_same_salt_does_not_hit_what_another_version_computed,
    test_the_same_salt_hits_and_another_does_not,
    test_without_a_salt_a_change_leaves_nothing_to_hit,
)
from tests.contract.test_traffic import (  # noqa: F401
    test_a_client_that_leaves_while_it_waits_is_forgotten,
    test_a_reply_names_the_version_whose_weights_made_it,
    test_requests_during_a_pause_wait_and_are_answered_by_the_new_weights,
)
from tests.contract.test_verbs import *  # noqa: F403

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
