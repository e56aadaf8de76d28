"""From which worker before it a worker receives. Pure.

A worker is slow if its own predecessor has much more than it, and it receives less than a reader
reads. Its successor passes over it. Workers further down are late too, but their predecessors
have all that they could get: so they wait, and the worker before the slow one is not asked by all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rlfleet_sidecar.sharing.turns import AT_ONCE

_SLACK = 16
"""Pieces by which two answers may differ because they were given at different moments."""
_SHARE = 16
"""Of a small version, so many parts of it: a sixteenth."""
_KEEPS_UP = 0.6
_HOLDS_UP = 0.4
"""Less than the half that a worker gets which shares its predecessor."""
_WORTH = 2.0


@dataclass(frozen=True, slots=True)
class Offer:
    """What one worker can send."""

    held: int
    """The pieces that it has."""
    within_reach: int
    """The pieces that its own predecessor has."""
    pace: int
    """The pieces that it received lately."""


def slack(total: int, pace: int) -> int:
    """Return by how many pieces a worker may be late without being slow.

    Workers receive hashes at different moments, so those of a fast reader differ by many.
    """
    return max(2, min(_SLACK, total // _SHARE), pace)


def choose(offers: Sequence[Offer | None], total: int, pace: int) -> int | None:
    """Return the place of the worker to receive from; None if none answers.

    Args:
        offers: In the order of the line, the nearest first; None from one that did not answer.
        total: The pieces of the version.
        pace: The hashes that came lately from a reader.

    The chosen one may have no other piece yet: then it waits for its own predecessor. If all are
    slow, it is the one that has the most.

    """
    answering = [(place, offer) for place, offer in enumerate(offers) if offer is not None]
    in_time = (place for place, offer in answering if not _holds_up(offer, total, pace))
    most = max(answering, key=lambda one: one[1].held, default=(None, None))[0]
    return next(in_time, most)


def _holds_up(offer: Offer, total: int, pace: int) -> bool:
    is_late = offer.held < total and offer.within_reach - offer.held > slack(total, pace)
    return is_late and offer.pace < _HOLDS_UP * pace


def is_late(held: int, known: int, total: int, received: int, hashed: int) -> bool:
    """Return whether it is worth asking all workers before this one.

    It has fewer pieces than it knows hashes of, and receives less than a reader hashed over the
    same time.
    """
    return known - held > slack(total, hashed) and (received < _KEEPS_UP * hashed or hashed == 0)


def is_to_blame(sender: Offer, held: int, total: int, pace: int) -> bool:
    """Return whether a late worker is late because of the one that it receives from.

    Not if that one only waits too, for a worker further up: its own successor looks around.
    """
    return sender.held - held > slack(total, pace) or _holds_up(sender, total, pace)


def is_slow(took_s: float, hashed_per_s: float) -> bool:
    """Return whether a piece took so long that its sender cannot keep up with the readers.

    It says so of a sender before anything has come late because of it, and of several in one
    line at the same time.
    """
    return took_s * hashed_per_s * _HOLDS_UP > AT_ONCE


def is_reader_slow(hashed_per_s: float, read_per_s: float, left: int, worth_s: float) -> bool:
    """Return whether readers are so slow that another worker begins to read the store.

    It must be faster by far, and save at least ``worth_s`` for the pieces that are left.
    """
    if read_per_s <= _WORTH * hashed_per_s:
        return False
    return hashed_per_s == 0 or left / hashed_per_s - left / read_per_s > worth_s
