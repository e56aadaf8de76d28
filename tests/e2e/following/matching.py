"""Whether the log probabilities of replies are those of the versions that they name. Pure.

A reference has, for each version, the log probabilities of the same tokens. Tokens of a reply
match if they are within a bound of the reference of the version that the reply names, and
further from that of every other version.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BOUND = 0.005
"""Mean difference of log probabilities. Engines of one version differ by 0 on one machine; of
neighbouring versions by 0.02 and more."""
ENOUGH = 4
"""Of fewer tokens, versions may have the same log probabilities."""
Tokens = tuple[int, ...]
Sample = tuple[int, Tokens]
"""A prompt's number, and a reply's tokens."""
Reference = Mapping[str, Sequence[Sequence[float]]]
"""By version, for each sample, the log probabilities of its tokens."""


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens of one reply that one version made."""

    sample: Sample
    version: str
    start: int
    end: int
    logprobs: tuple[float, ...]
    """Of these tokens, as the reply has them."""


@dataclass(frozen=True, slots=True)
class Match:
    """How far a span is from the reference of its version, and from the nearest other one."""

    span: Span
    own: float | None
    """None: there is no reference of the version that the reply names."""
    other: float
    rival: str

    @property
    def is_near(self) -> bool:
        """Whether it is within the bound."""
        return self.own is not None and self.own <= BOUND

    @property
    def is_matched(self) -> bool:
        """Whether it is also nearer to its version than to any other."""
        return self.is_near and self.own is not None and self.own < self.other

    @property
    def is_wrong(self) -> bool:
        """Whether it cannot have been made by the version that the reply names."""
        is_short = self.span.end - self.span.start < ENOUGH
        return not (self.is_near if is_short else self.is_matched)


def spans(record: Mapping[str, Any]) -> Iterator[Span]:
    """Yield the spans of a client's record that have tokens."""
    sample = (record["prompt"], tuple(record["tokens"]))
    for version, start, end in record["spans"]:
        if start < end:
            yield Span(sample, version, start, end, tuple(record["logprobs"][start:end]))


def is_whole(record: Mapping[str, Any]) -> bool:
    """Return whether a record is a full answer, each token of which has a version."""
    if "error" in record:
        return False
    ends = [0, *(end for _, _, end in record["spans"])]
    count = len(record["tokens"])
    is_named = ends[:-1] == [start for _, start, _ in record["spans"]] and ends[-1] == count
    return (
        is_named
        and (record["finish"], count) == ("length", record["wanted"])
        and len(record["logprobs"]) == count
    )


def samples(found: Iterable[Span]) -> list[Sample]:
    """Return each sample once: what the reference is computed of."""
    return list(dict.fromkeys(span.sample for span in found))


def far(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the mean difference of two lists of log probabilities."""
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) / len(one)


def matches(found: Iterable[Span], order: Sequence[Sample], reference: Reference) -> list[Match]:
    """Compare each span with the reference of each version; equal spans are compared once."""
    places = {sample: place for place, sample in enumerate(order)}
    known: dict[Span, Match] = {}
    made = []
    for span in found:
        if span not in known:
            known[span] = _match(span, places[span.sample], reference)
        made.append(known[span])
    return made


def _match(span: Span, place: int, reference: Reference) -> Match:
    away = {
        version: far(span.logprobs, logprobs[place][span.start : span.end])
        for version, logprobs in reference.items()
    }
    own = away.pop(span.version, None)
    rival = min(away, key=lambda version: away[version], default="")
    return Match(span, own, away.get(rival, float("inf")), rival)
