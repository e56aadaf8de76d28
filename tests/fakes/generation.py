"""What a fake engine has made of a reply."""

from dataclasses import dataclass, field
from typing import Any

from tests.fakes.adapters import LoRARequest
from tests.fakes.replies import Said


@dataclass(slots=True, eq=False)
class Generation:
    """One choice of a reply, as far as it is made."""

    tokens: int
    index: int = 0
    adapter: LoRARequest | None = None
    choices: int = 1
    """How many were asked for of each prompt."""
    known_as: str = ""
    """The id of its request in the engine."""
    aborted: bool = False
    made: list[int] = field(default_factory=list)
    starts: list[tuple[str, int]] = field(default_factory=list)
    """From which token on the engine's weights had which label."""

    @property
    def spans(self) -> list[dict[str, Any]]:
        """Which tokens were made under which label; none of one that ended before its first."""
        ends = [start for _, start in self.starts[1:]] + [len(self.made)] * bool(self.starts)
        return [
            {"version": version, "start": start, "end": end}
            for (version, start), end in zip(self.starts, ends, strict=True)
        ]

    def said(self, logprob: float, since: int = 0) -> Said:
        """Return the tokens from this one on, and the finish reason if it has ended."""
        is_over = self.aborted or len(self.made) == self.tokens
        reason = "abort" if self.aborted else "length"
        return Said(
            self.index,
            self.made[since:],
            reason if is_over else None,
            self.spans if is_over else [],
            logprob,
        )
