"""Whatever a version is called, Kubernetes takes its label, and it tells versions apart."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlfleet_contract.api import VERSION_PATTERN
from rlfleet_operator.core.label import LABEL_CHARACTERS, label_of

LABEL_PATTERN = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
"""Of a label's value, as apimachinery checks it."""
VERSIONS = st.from_regex(VERSION_PATTERN, fullmatch=True).filter(lambda name: name.isascii())


@given(VERSIONS)
def test_every_version_has_a_label_that_kubernetes_takes(version: str) -> None:
    found = label_of(version)

    assert found is not None
    assert re.fullmatch(LABEL_PATTERN, found)
    assert found == label_of(version)


@given(st.integers(12, 75), st.data())
def test_long_versions_that_begin_alike_have_other_labels(length: int, data: st.DataObject) -> None:
    end = st.text("abc.-_", min_size=length, max_size=length)
    one, other = (f"{'a' * 52}{data.draw(end)}1" for _ in range(2))

    assert (label_of(one) == label_of(other)) is (one == other)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (None, None),
        ("base", "base"),
        ("a" * LABEL_CHARACTERS, "a" * 63),
        ("a" * 64, "a" * 52 + "-ffe054fe7a"),
        ("a" * 51 + "." * 76 + "b", "a" * 51 + ".-960e349655"),
    ],
    ids=["no version", "a short one", "one that just fits", "one too many", "dots where it is cut"],
)
def test_a_version_that_fits_is_its_label_and_a_longer_one_is_cut(
    version: str | None, expected: str | None
) -> None:
    assert label_of(version) == expected
