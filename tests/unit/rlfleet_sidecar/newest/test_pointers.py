"""What pointer files name for a fleet that follows, and what none of them means."""

import pytest

from rlfleet_sidecar.newest.pointers import BadPointerError, Pointed, of_latest, of_verl


def test_latest_names_a_run_and_a_version() -> None:
    expected = Pointed(7, "run-1", ("weight_v000007", "000007"))

    assert of_latest(b"run-1/weight_v000007") == expected


@pytest.mark.parametrize("text", [b"", b" \n", b"base", b"see below"])
def test_a_pointer_that_names_no_version_is_an_error(text: bytes) -> None:
    with pytest.raises(BadPointerError, match="expected RUN/weight_vNNNNNN"):
        of_latest(text)


def test_verl_s_iteration_is_a_bare_number() -> None:
    assert of_verl(b"120\n") == Pointed(120, "", ("120", "global_step_120"))
    for text in (b"", b"global_step_120", b"1 2", b"\xff1"):
        with pytest.raises(BadPointerError):
            of_verl(text)
