"""Requests of one kind are bounded, and leave their places however they end."""

from contextlib import ExitStack

import pytest

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.http.request_limit import COMMANDS, READS, RequestLimit


@pytest.mark.parametrize(("method", "most"), [("POST", COMMANDS), ("GET", READS)])
def test_one_kind_is_bounded_and_takes_no_other_s_place(method: str, most: int) -> None:
    crowd = RequestLimit()
    with ExitStack() as inside:
        for _ in range(most):
            inside.enter_context(crowd.place(method, "/pause"))
        with pytest.raises(SidecarError, match=f"{method} .pause .at most {most}.") as refused:
            inside.enter_context(crowd.place(method, "/pause"))
        assert refused.value.code is Code.TOO_MANY_REQUESTS
        inside.enter_context(crowd.place(method, "/resume"))
        inside.enter_context(crowd.place("DELETE", "/pause"))

    with crowd.place(method, "/pause"):
        pass


def test_a_request_that_fails_leaves_its_place() -> None:
    crowd = RequestLimit()
    for _ in range(COMMANDS + 1):
        with pytest.raises(ValueError), crowd.place("POST", "/pause"):  # noqa: PT011
            raise ValueError
