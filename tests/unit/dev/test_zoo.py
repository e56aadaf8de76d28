"""What of the known results stays when some models are examined again."""

from dev.zoo import merged


def test_named_models_replace_their_rows_and_new_ones_come_last() -> None:
    known = [{"model": name, "passed": False} for name in ("a", "b", "c")]
    rows = [{"model": name, "passed": True} for name in ("d", "b")]

    assert [(row["model"], row["passed"]) for row in merged(known, rows)] == [
        ("a", False),
        ("b", True),
        ("c", False),
        ("d", True),
    ]
