"""What clients saw: every request that they sent, and which weights made each token."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Reply:
    """One try of one request; times are the client's monotonic seconds."""

    id: str
    sent: float
    ended: float
    wanted: int
    """Tokens that were asked for."""
    finish: str = ""
    tokens: int = 0
    head: tuple[int, ...] = ()
    """The first tokens, chosen greedily from one prompt."""
    spans: tuple[tuple[str, int, int], ...] = ()
    """(version, first token, one after the last)."""
    error: str = ""

    @property
    def versions(self) -> list[str]:
        """The versions that made its tokens, in order."""
        return [version for version, _, _ in self.spans]

    @property
    def is_mixed(self) -> bool:
        """Whether more than one version made its tokens."""
        return len(self.spans) > 1

    @property
    def is_reported_in_full(self) -> bool:
        """Whether its spans say of each token which version made it."""
        ends = [0, *(end for _, _, end in self.spans)]
        return ends[:-1] == [start for _, start, _ in self.spans] and ends[-1] == self.tokens


@dataclass(frozen=True, slots=True)
class History:
    """All replies, in the order in which they ended."""

    replies: tuple[Reply, ...]

    @property
    def lost(self) -> list[Reply]:
        """Tries without an answer, and answers that end early and do not say why."""
        return [
            r
            for r in self.replies
            if r.error or (r.finish != "abort" and (r.finish, r.tokens) != ("length", r.wanted))
        ]

    @property
    def unfinished(self) -> set[str]:
        """Requests that no try brought to their end."""
        done = {r.id for r in self.replies if r.finish == "length"}
        return {r.id for r in self.replies} - done

    @property
    def aborted(self) -> list[Reply]:
        """Tries that were ended with the marker."""
        return [r for r in self.replies if r.finish == "abort"]

    @property
    def mixed(self) -> list[Reply]:
        """Replies of more than one version."""
        return [r for r in self.replies if r.is_mixed]

    @property
    def versions(self) -> set[str]:
        """Every version that made a token."""
        return {version for r in self.replies for version in r.versions}

    def late(self, old: str, new: str) -> list[Reply]:
        """Replies with tokens of ``old`` that were asked for when ``new`` was known to serve."""
        known = min((r.ended for r in self.replies if new in r.versions), default=float("inf"))
        return [r for r in self.replies if r.sent > known and old in r.versions]

    def heads(self) -> dict[str, set[tuple[int, ...]]]:
        """Return how replies began, by the version that began them."""
        found: dict[str, set[tuple[int, ...]]] = {}
        for version, head in self._begun():
            found.setdefault(version, set()).add(head)
        return found

    def _begun(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        for reply in self.replies:
            if reply.head and reply.spans and reply.spans[0][2] >= len(reply.head):
                yield reply.spans[0][0], reply.head


def history_of(records: Sequence[dict[str, Any]]) -> History:
    """Return the history that the clients recorded."""
    replies = [
        Reply(
            **record
            | {
                "head": tuple(record.get("head", ())),
                "spans": tuple((v, s, e) for v, s, e in record.get("spans", ())),
            }
        )
        for record in records
    ]
    return History(tuple(sorted(replies, key=lambda reply: reply.ended)))
