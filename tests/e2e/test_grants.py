"""What the installed operator asked of a real cluster's API server, until this test, which is last.

tests/integration/test_grants.py shows that it uses all that the chart grants.
"""

import pytest

from dev import target
from dev.demo import stage
from dev.kubernetes import audit
from dev.node import layout
from tests.e2e.scenario import Fleet

OPERATOR = f"system:serviceaccount:{stage.OPERATOR_NAMESPACE}:{stage.RELEASE}"


@pytest.mark.skipif(target.is_existing(), reason="only the cluster of dev.node keeps an audit log")
def test_no_request_of_the_operator_was_denied(fleet: Fleet) -> None:
    asked = set(audit.asked(audit.log_in(layout.state()), OPERATOR))

    assert {"create", "patch", "watch"} <= {one.verb for one in asked}, "no audit log"
    assert audit.denied(asked) == set()
