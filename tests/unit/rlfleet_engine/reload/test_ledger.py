"""A tensor counts as read when anything that begins in its bytes was."""

from rlfleet_engine.reload.ledger import Ledger


def test_a_tensor_of_its_own_storage_is_read_from_any_place() -> None:
    ledger = Ledger()
    ledger.came("a", storage=1, begin=0, end=16)
    ledger.came("b", storage=2, begin=0, end=16)

    ledger.reads(storage=1, begin=8)

    assert ledger.read == {"a"}


def test_tensors_that_share_a_file_s_storage_are_distinguished() -> None:
    ledger = Ledger()
    for place, name in enumerate(("c", "a", "b")):
        ledger.came(name, storage=1, begin=place * 16, end=place * 16 + 16)

    ledger.reads(1, 16)
    ledger.reads(1, 47)

    assert ledger.read == {"a", "b"}


def test_a_read_outside_of_all_tensors_counts_for_none() -> None:
    ledger = Ledger()
    ledger.came("a", storage=1, begin=16, end=32)

    for storage, begin in ((1, 0), (1, 32), (2, 16)):
        ledger.reads(storage, begin)

    assert ledger.read == set()
    assert ledger.is_known(1)
    assert not ledger.is_known(2)


def test_a_buffer_that_is_used_again_counts_for_what_stands_there_now() -> None:
    ledger = Ledger()
    ledger.came("a", storage=1, begin=0, end=16)
    ledger.came("b", storage=1, begin=0, end=8)

    ledger.reads(1, 0)
    ledger.reads(1, 12)

    assert ledger.read == {"b"}
