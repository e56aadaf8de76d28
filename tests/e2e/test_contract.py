"""The sidecar's contract suite again, on a real worker: ``subject`` is this folder's.

Left out are the tests that must pause or abort one request before it ends by itself: a tiny
model on a quiet machine ends it first. test_rollout.py shows the same under a steady load.
"""

import pytest

from dev.images import names
from rlfleet_engine.vllm.uses import SPANS, has
from tests.contract.samplers.test_cache_salts import (  # noqa: F401
    prompt,
    test_a_salt_is_one_salt_wherever_clients_put_it,
    test_a_salt_that_is_no_text_is_refused_by_its_name,
    test_caches_that_a_trainer_keeps_are_read_by_no_other_version,
    test_the_same_salt_hits_and_another_does_not,
    test_without_a_salt_a_change_leaves_nothing_to_hit,
)
from tests.contract.samplers.test_renderers import *  # noqa: F403
from tests.contract.samplers.test_token_ids import *  # noqa: F403
from tests.contract.samplers.test_tokenize import *  # noqa: F403
from tests.contract.samplers.test_traffic import (  # noqa: F401
    test_a_client_that_leaves_while_it_waits_is_forgotten,
    test_requests_during_a_pause_wait_and_are_answered_by_the_new_weights,
)
from tests.contract.samplers.test_versions import (  # noqa: F401
    first,
    test_a_malformed_body_is_refused_by_the_name_of_its_field,
    test_a_minimum_without_an_order_is_a_fault_of_the_request,
    test_a_paused_engine_is_alive,
    test_a_prompt_that_is_too_long_gets_the_error_that_clients_know,
    test_a_reply_names_its_version_at_its_start_and_at_its_end,
    test_a_request_at_the_gate_is_judged_when_it_passes,
    test_a_request_for_another_version_gets_a_retryable_error,
    test_a_request_for_the_served_version_is_answered,
    test_a_stream_names_its_end_version_in_an_event_on_request,
    test_a_streamed_reply_names_its_version_at_its_start_alone,
    test_an_error_names_its_version_too,
)
from tests.contract.sidecar.test_http_examples import (  # noqa: F401
    test_an_engine_answers_as_it_is_shown,
)
from tests.contract.sidecar.test_verbs import *  # noqa: F403
from tests.contract.trainers.test_transcripts import test_a_client_is_answered_as_it_expects  # noqa: F401

if has(names.chosen(), SPANS):
    from tests.contract.samplers.test_traffic import (  # noqa: F401
        test_a_reply_names_the_version_whose_weights_made_it,
    )

pytestmark = [pytest.mark.cluster, pytest.mark.release, pytest.mark.timeout(1800)]
