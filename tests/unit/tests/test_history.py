"""What the end-to-end tests read out of their clients' records: an oracle has to see faults."""

from typing import Any

from tests.e2e.history import history_of


def reply(**fields: Any) -> dict[str, Any]:
    """Make the record of a good reply of one version."""
    good = {"id": "0/1", "sent": 0.0, "ended": 1.0, "wanted": 8, "finish": "length", "tokens": 8}
    return good | {"head": [1, 2, 3, 4], "spans": [("a", 0, 8)]} | fields


def test_what_got_no_answer_or_ended_early_unmarked_is_lost() -> None:
    bad = [reply(error="ReadError"), reply(tokens=5), reply(finish="stop")]

    assert len(history_of([reply(), *bad]).lost) == len(bad)
    assert not history_of([reply(), reply(finish="abort", tokens=3)]).lost


def test_an_aborted_request_has_to_be_ended_by_a_later_try() -> None:
    aborted = reply(finish="abort", tokens=3)

    assert history_of([aborted]).unfinished == {"0/1"}
    assert history_of([aborted, reply()]).unfinished == set()


def test_a_reply_of_two_versions_is_mixed_and_a_gap_between_them_is_seen() -> None:
    mixed = reply(spans=[("a", 0, 3), ("b", 3, 8)])
    gap = reply(spans=[("a", 0, 3), ("b", 4, 8)])
    unreported = reply(spans=[])

    history = history_of([mixed, reply()])
    assert [r.versions for r in history.mixed] == [["a", "b"]]
    assert all(r.is_reported_in_full for r in history.replies)
    assert not any(r.is_reported_in_full for r in history_of([gap, unreported]).replies)


def test_old_tokens_for_a_request_sent_when_the_new_version_served_are_late() -> None:
    new = reply(ended=2.0, spans=[("b", 0, 8)])
    under_way = reply(sent=1.9, ended=3.0)
    late = reply(sent=2.1, ended=3.0)

    assert not history_of([new, under_way]).late("a", "b")
    assert len(history_of([new, late]).late("a", "b")) == 1


def test_heads_are_recognised_by_the_version_that_made_all_of_them() -> None:
    split = reply(head=[1, 2, 9, 9], spans=[("a", 0, 2), ("b", 2, 8)])
    stale = reply(head=[7, 7, 7, 7])

    assert history_of([reply(), split]).heads() == {"a": {(1, 2, 3, 4)}}
    assert len(history_of([reply(), stale]).heads()["a"]) == len([reply(), stale])
