"""What was read of a rank's memory, against what stood there and what was fed."""

from rlfleet_engine.reload.read_back import (
    Memory,
    RankRecord,
    ReadTensor,
    comparable,
    compared,
    differing,
    kept,
    reloaded,
    report_of,
    stored_plainly,
)


def memory(**digests: int) -> Memory:
    return {name: ReadTensor("bfloat16", (4,), 8, digest) for name, digest in digests.items()}


OLD = memory(norm=1, gate=2, fused=3)
FED_OLD = memory(norm=1, gate=2)
NEW = memory(norm=10, gate=20, fused=30)
FED_NEW = memory(norm=10, gate=20)


def test_the_digest_minds_names_kinds_and_content() -> None:
    others = [
        report_of(memory(norm=1)).digest,
        report_of(memory(norm=2)).digest,
        report_of(memory(other=1)).digest,
        report_of({"norm": ReadTensor("float16", (4,), 8, 1)}).digest,
        report_of({"norm": ReadTensor("bfloat16", (2, 2), 8, 1)}).digest,
    ]
    assert len(set(others)) == len(others)
    assert report_of({name: OLD[name] for name in reversed(list(OLD))}) == report_of(OLD)
    assert report_of(OLD).nbytes == 24


def test_a_reload_that_reached_the_memory_shows() -> None:
    read = compared(OLD, NEW, FED_NEW, FED_OLD)

    assert (read.changed, read.fed, read.as_fed, read.kept) == (True, 16, 16, ())


def test_old_weights_that_stayed_are_named_even_in_the_first_reload() -> None:
    for fed_before in (None, FED_OLD):
        read = compared(OLD, OLD, FED_NEW, fed_before)
        assert (read.changed, read.as_fed, read.kept) == (False, 0, ("gate", "norm"))


def test_one_parameter_that_stayed_among_others_that_came_is_named() -> None:
    assert kept(OLD, memory(norm=10, gate=2, fused=30), FED_NEW, FED_OLD) == ["gate"]


def test_a_parameter_that_the_model_transforms_may_stay_when_its_tensor_did() -> None:
    before, after = memory(norm=1, scaled=77), memory(norm=10, scaled=77)

    assert kept(before, after, memory(norm=10, scaled=7), memory(norm=1, scaled=7)) == []
    assert kept(before, after, memory(norm=10, scaled=7), None) == []
    assert kept(before, after, memory(norm=10, scaled=8), memory(norm=1, scaled=7)) == ["scaled"]


def test_the_same_checkpoint_again_keeps_nothing_back() -> None:
    read = compared(NEW, NEW, FED_NEW, FED_NEW)

    assert (read.changed, read.as_fed, read.kept) == (False, 16, ())


def test_only_some_are_named() -> None:
    many = memory(**{f"p{n}": n for n in range(9)})
    other = memory(**{f"p{n}": n + 50 for n in range(9)})

    assert compared(many, many, other, many).kept == ("p0", "p1", "p2")


def test_a_parameter_that_took_random_values_as_they_were_is_plain() -> None:
    after = RankRecord(memory(norm=10, scaled=77, fused=3), memory(norm=10, scaled=7))

    assert stored_plainly(after, ["norm", "scaled", "absent"]) == {"norm"}
    assert stored_plainly(after, ["scaled"]) == set()
    assert stored_plainly(RankRecord(None), ["norm"]) == set()


def test_a_plain_parameter_with_other_values_than_its_tensor_is_named() -> None:
    wrong = memory(norm=11, gate=20)

    assert differing(wrong, FED_NEW, {"norm", "gate", "absent"}) == ["norm"]
    assert differing(wrong, FED_NEW, {"gate"}) == []
    assert differing(memory(gate=20), FED_NEW, {"norm"}) == ["norm"]


def test_a_reload_that_wrote_one_wrong_value_reports_the_parameter() -> None:
    """All else moved as it had to, which an engine that transforms a tensor shows too."""
    wrong = RankRecord(memory(norm=11, gate=20, fused=30), FED_NEW, "d2")

    for plain, named in ((frozenset({"norm"}), ("norm",)), (frozenset(), ())):
        read = reloaded(RankRecord(OLD, FED_OLD, "d1", plain=plain), wrong)
        assert read is not None
        assert (read.changed, read.kept, read.differing) == (True, (), named)


def test_a_reload_reports_the_memory_after_it() -> None:
    read = reloaded(RankRecord(OLD), RankRecord(NEW, FED_NEW, "d2"))

    assert read is not None
    assert (read.digest, read.changed) == (report_of(NEW).digest, True)


def test_tensors_that_were_cast_are_not_compared_with_the_reload_before() -> None:
    assert comparable(RankRecord(OLD, FED_OLD, "d1"), "d2") == "d1"
    assert comparable(RankRecord(OLD, FED_OLD, None), "d2") is None
    assert comparable(RankRecord(OLD, FED_OLD, "d1"), None) is None


def test_memory_that_cannot_be_read_is_not_reported() -> None:
    for before, after in ((None, None), (None, NEW), (OLD, None)):
        assert reloaded(RankRecord(before), RankRecord(after)) is None


def test_a_report_includes_how_much_of_the_model_was_read() -> None:
    sizes = (96, 72)
    one = reloaded(RankRecord(OLD, sizes=sizes), RankRecord(NEW, FED_NEW, "d2", sizes))
    first = RankRecord(OLD, sizes=sizes).read_back()

    for read in (one, first):
        assert read is not None
        assert (read.whole, read.unseen, read.share) == (96, 72, 0.25)


def test_an_unknown_share_is_not_reported() -> None:
    unknown = RankRecord(OLD).read_back()

    assert unknown is not None
    assert unknown.share is None
    assert RankRecord(None, sizes=(96, 0)).read_back() is None
