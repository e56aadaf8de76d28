"""Quantities mean what Kubernetes takes them for."""

import pytest

from rlfleet_operator.core.manifests.quantity import in_bytes


@pytest.mark.parametrize(
    ("quantity", "number"),
    [
        (5, 5),
        ("5", 5),
        ("+5", 5),
        ("1Ki", 1024),
        ("1.5Gi", 3 << 29),
        (".5Mi", 1 << 19),
        ("1Ti", 1 << 40),
        ("2k", 2000),
        ("3M", 3_000_000),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("1500m", 2),
        ("1n", 1),
    ],
)
def test_a_quantity_is_a_number_of_bytes_rounded_up(quantity: int | str, number: int) -> None:
    assert in_bytes(quantity) == number


@pytest.mark.parametrize(
    "quantity",
    ["", "Gi", "1Q", "1 Gi", "1.2.3x", "1.2.3", -1, "-1", "1e999999999", "1e99999", "1e-999999999"],
)
def test_anything_but_a_quantity_is_rejected(quantity: int | str) -> None:
    with pytest.raises(ValueError, match="expected a quantity"):
        in_bytes(quantity)
