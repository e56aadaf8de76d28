"""The sidecar's contract suite again, on a real worker: ``subject`` is this folder's."""

import pytest

from tests.contract.test_traffic import *  # noqa: F403
from tests.contract.test_verbs import *  # noqa: F403

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
