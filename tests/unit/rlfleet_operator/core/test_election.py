"""Leader election from a Lease and one clock."""

from rlfleet_operator.core.election import (
    Candidate,
    LeaseRecord,
    ReadLease,
    Resign,
    Wait,
    WriteLease,
    decide,
    may_send_until,
)

NEW = Candidate("me")
OTHERS = LeaseRecord("5", "other")


def test_nothing_is_decided_before_the_first_look() -> None:
    assert decide(NEW, 0.0) == ReadLease()


def test_where_there_is_no_lease_the_first_leads_at_once() -> None:
    assert decide(NEW.saw(None, 0.0), 0.0) == WriteLease()


def test_a_lease_that_was_given_back_is_taken_at_once() -> None:
    assert decide(NEW.saw(LeaseRecord("5", ""), 0.0), 0.0) == WriteLease()


def test_its_own_lease_is_taken_up_again_at_once() -> None:
    assert decide(NEW.saw(LeaseRecord("5", "me"), 0.0), 0.0) == WriteLease()


def test_another_s_lease_is_looked_at_each_second() -> None:
    seen = NEW.saw(OTHERS, 0.0)

    assert decide(seen, 0.2) == Wait(1.0)
    assert decide(seen, 1.0) == ReadLease()


def test_another_s_lease_is_taken_when_it_stayed_the_same_for_its_duration() -> None:
    seen = NEW.saw(OTHERS, 0.0)
    for moment in range(1, 10):
        seen = seen.saw(OTHERS, moment)

    assert decide(seen, 9.9) == Wait(10.0)
    assert decide(seen, 10.0) == WriteLease()


def test_a_renewal_restarts_the_wait() -> None:
    seen = NEW.saw(OTHERS, 0.0).saw(LeaseRecord("6", "other"), 9.0)

    assert decide(seen, 9.5) == Wait(10.0)
    assert decide(seen.saw(LeaseRecord("6", "other"), 18.0), 18.9) == Wait(19.0)


def test_a_holder_that_claims_longer_is_waited_for_longer() -> None:
    seen = NEW.saw(LeaseRecord("5", "other", lease_s=30.0), 0.0)

    assert decide(seen, 29.0) == ReadLease()
    assert decide(seen, 30.0) == WriteLease()


def test_a_deleted_lease_is_not_free_yet() -> None:
    """Its holder has not noticed."""
    seen = NEW.saw(OTHERS, 0.0).saw(None, 1.0)

    assert decide(seen, 1.5) == Wait(2.0)
    assert decide(seen.saw(None, 10.5), 10.9) == Wait(11.0)
    assert decide(seen.saw(None, 10.5), 11.0) == WriteLease()


def test_after_a_failed_call_it_pauses_and_looks() -> None:
    seen = NEW.saw(None, 0.0).failed(1.0)

    assert decide(seen, 1.0) == Wait(1.5)
    assert decide(seen, 1.5) == ReadLease()


def test_a_leader_renews_every_two_seconds() -> None:
    leading = NEW.saw(None, 0.0).wrote(LeaseRecord("1", "me"), 0.1, 0.3)

    assert decide(leading, 0.4) == Wait(2.1)
    assert decide(leading, 2.1) == WriteLease()


def test_a_leader_counts_from_before_it_sent() -> None:
    leading = NEW.saw(None, 0.0).wrote(LeaseRecord("1", "me"), 0.1, 5.0)

    assert may_send_until(0.1) == 6.1
    assert decide(leading, 6.0) == WriteLease()
    assert decide(leading, 6.1) == Resign()


def test_a_renewal_that_failed_does_not_extend_its_time() -> None:
    leading = NEW.saw(None, 0.0).wrote(LeaseRecord("1", "me"), 0.0, 0.1).failed(5.8)

    assert decide(leading, 5.9) == Wait(6.0)
    assert decide(leading, 6.0) == Resign()


def test_a_leader_that_finds_another_in_the_lease_resigns_at_once() -> None:
    leading = NEW.saw(None, 0.0).wrote(LeaseRecord("1", "me"), 0.0, 0.1).failed(2.0)

    assert decide(leading, 2.5) == ReadLease()
    assert decide(leading.saw(LeaseRecord("9", "other"), 2.6), 2.6) == Resign()


def test_a_leader_creates_its_deleted_lease_again() -> None:
    leading = NEW.saw(None, 0.0).wrote(LeaseRecord("1", "me"), 0.0, 0.1).failed(2.0)

    assert decide(leading.saw(None, 2.6), 2.6) == WriteLease()


def test_a_candidate_that_resigned_may_lead_again() -> None:
    leading = NEW.saw(None, 0.0).wrote(LeaseRecord("1", "me"), 0.0, 0.1)

    assert decide(leading.resigned(), 7.0) == WriteLease()
    assert decide(leading.resigned().failed(7.0).saw(OTHERS, 7.6), 7.7) == Wait(8.6)
