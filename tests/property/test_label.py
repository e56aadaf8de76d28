"""Whatever a version is called, Kubernetes takes its label, and it distinguishes versions."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlfleet_contract.paths import VERSION_PATTERN
from rlfleet_operator.core.model.version_label import LABEL_CHARACTERS, label_of

LABEL_PATTERN = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
"""Of a label's value, as apimachinery checks it."""
_ENDS = string.ascii_letters + string.digits


def text(characters: str, least: int, most: int) -> st.SearchStrategy[str]:
    """Return texts of every length alike; left alone, most would be short."""
    lengths = st.integers(least, most)
    return lengths.flatmap(lambda length: st.text(characters, min_size=length, max_size=length))


VERSIONS = st.one_of(
    st.sampled_from(_ENDS),
    st.tuples(st.sampled_from(_ENDS), text(_ENDS + "._-", 0, 126), st.sampled_from(_ENDS)).map(
        "".join
    ),
)


@given(VERSIONS)
def test_every_version_has_a_label_that_kubernetes_takes(version: str) -> None:
    found = label_of(version)

    assert re.fullmatch(VERSION_PATTERN, version)
    assert found is not None
    assert re.fullmatch(LABEL_PATTERN, found)
    assert found == version or len(version) > LABEL_CHARACTERS


@given(text("abc._-", 12, 75), text("abc._-", 12, 75))
def test_long_versions_that_begin_alike_have_other_labels(one: str, other: str) -> None:
    first, second = (f"{'a' * 52}{end}1" for end in (one, other))

    assert (label_of(first) == label_of(second)) is (first == second)


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
