"""What the pointer ``latest`` names, and what none of its texts means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlfleet_sidecar.deltas.formats.delta import BadDeltaError, TornDeltaError
from rlfleet_sidecar.deltas.formats.pointer import Pointer, pointer_of


@pytest.mark.parametrize(
    ("text", "run", "names"),
    [
        ("run-1/weight_v000007", "run-1", ("weight_v000007", "000007")),
        ("a/b/weight_v000007\n", "a/b", ("weight_v000007", "000007")),
        ("\N{ZERO WIDTH NO-BREAK SPACE}weight_v000012\r\n", "", ("weight_v000012", "000012")),
        ("weight_v000012\n", "", ("weight_v000012", "000012")),
        ("0012", "", ("weight_v000012", "000012")),
        ("weight_v0000007", "", ("weight_v000007", "000007")),
        ("global_step100", "", ("global_step100",)),
        ("run/step-0010", "run", ("step-0010",)),
        (f"{'r' * 128}/7", "r" * 128, ("weight_v000007", "000007")),
    ],
)
def test_a_pointer_names_a_run_and_a_version(text: str, run: str, names: tuple[str, ...]) -> None:
    found = pointer_of(text.encode())

    assert (found.run, found.names) == (run, names)


@pytest.mark.parametrize(
    "text",
    [
        "base",
        "newest",
        "a b/weight_v000007",
        "../weight_v000001",
        "run/../weight_v000001",
        "run//weight_v000001",
        "run-1/",
        "run/weight_v",
        "/1",
        "-1",
        "x",
        "9" * 19,
        "weight_v00000\N{ARABIC-INDIC DIGIT SEVEN}",
        f"{'r' * 129}/7",
        "\udcff/x",
    ],
)
def test_an_unknown_text_never_means_the_base_model(text: str) -> None:
    with pytest.raises(BadDeltaError, match="expected RUN/weight_vNNNNNN"):
        pointer_of(text.encode(errors="surrogateescape"))


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_pointer_is_waited_for(text: str) -> None:
    with pytest.raises(TornDeltaError, match="is empty"):
        pointer_of(text.encode())


@pytest.mark.parametrize("text", ["weight_v00001", "run/weight_v0"])
def test_a_pointer_cut_in_its_digits_names_no_other_version(text: str) -> None:
    with pytest.raises(TornDeltaError, match="expected 6 digits"):
        pointer_of(text.encode())


@given(st.text(max_size=40))
def test_a_pointer_names_no_path(text: str) -> None:
    try:
        found = pointer_of(text.encode())
    except (BadDeltaError, TornDeltaError):
        return
    assert not any("/" in name or name.startswith(".") for name in found.names)


def test_a_version_beyond_the_pointer_is_waited_for() -> None:
    pointer = Pointer("run", "weight_v", "000007")

    pointer.demand_published(7)
    with pytest.raises(TornDeltaError, match="older than weight_v000008"):
        pointer.demand_published(8)


def test_a_pointer_to_another_kind_of_version_publishes_no_delta() -> None:
    with pytest.raises(BadDeltaError, match="contains 'step-7', expected RUN/weight_vNNNNNN"):
        pointer_of(b"run/step-7").demand_published(7)
