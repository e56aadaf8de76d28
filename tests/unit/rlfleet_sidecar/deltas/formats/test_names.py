"""Names of versions are read exactly or rejected."""

import pytest

from rlfleet_sidecar.deltas.formats.names import SKYRL, WEIGHTS, Series, series_of


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("weight_v000007", (WEIGHTS, 7)),
        ("weight_v1234567", (WEIGHTS, 1234567)),
        ("delta-00000012", (SKYRL, 12)),
        ("weight_v7", None),
        ("weight_v0000007", None),
        ("weight_v-00007", None),
        ("weight_v00000\N{ARABIC-INDIC DIGIT SEVEN}", None),
        ("weight_v" + "9" * 40, None),
        ("delta-12", None),
        ("step-7", None),
        ("base", None),
    ],
)
def test_a_name_has_one_number(version: str, expected: tuple[Series, int] | None) -> None:
    assert series_of(version) == expected
