"""The table of all kinds of faults, by side."""

from collections.abc import Sequence
from dataclasses import dataclass

from faults.plan import Place, Plan, Side


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to fail."""

    name: str
    side: Side
    group: str
    """The row of the summary that counts it."""
    always: bool = False
    """Injected at every request; the other modes alternate."""
    steps: tuple[str, ...] = ()
    """On the engine's side: the steps that it applies to; empty means all."""
    may_fail: bool = False
    """The operator may blame the version; then a rollout that stops safely is right too."""
    silence: bool = False
    """A watch falls silent; the operator gets a short timeout for it."""


API = (
    Mode("kill-before", Side.API, "operator killed", always=True),
    Mode("kill-after", Side.API, "operator killed", always=True),
    Mode("reply-lost", Side.API, "reply lost", always=True),
    Mode("duplicate", Side.API, "request repeated"),
    Mode("delayed", Side.API, "request delayed"),
    Mode("conflict", Side.API, "409"),
    Mode("forbidden", Side.API, "403"),
    Mode("too-many", Side.API, "429"),
    Mode("error-500", Side.API, "500"),
    Mode("error-503", Side.API, "503"),
    Mode("watch-dropped", Side.API, "watch dropped"),
    Mode("watch-frozen", Side.API, "watch frozen", silence=True),
    Mode("watch-gone", Side.API, "410 Gone"),
    Mode("time-travel", Side.API, "older than before"),
    Mode("kill-time-travel", Side.API, "older than before"),
)
SIDECAR = (
    Mode("kill-before", Side.SIDECAR, "operator killed", always=True),
    Mode("kill-after", Side.SIDECAR, "operator killed", always=True),
    Mode("reply-lost", Side.SIDECAR, "reply lost", always=True),
    Mode("operator-suspended", Side.SIDECAR, "operator suspended"),
    Mode("duplicate", Side.SIDECAR, "request repeated"),
    Mode("delayed", Side.SIDECAR, "request delayed"),
    Mode("late", Side.SIDECAR, "request late"),
    Mode("hang-done", Side.SIDECAR, "timeout, done"),
    Mode("hang-not-done", Side.SIDECAR, "timeout, not done"),
    Mode("malformed", Side.SIDECAR, "malformed reply"),
    Mode("malformed-state", Side.SIDECAR, "malformed reply"),
    Mode("oversize", Side.SIDECAR, "oversize reply"),
    Mode("unauthorized", Side.SIDECAR, "401"),
    Mode("error-500", Side.SIDECAR, "500"),
    Mode("sidecar-kill-before", Side.SIDECAR, "sidecar killed"),
    Mode("sidecar-kill-after", Side.SIDECAR, "sidecar killed"),
    Mode("news-cut", Side.SIDECAR, "watch cut in a line"),
    Mode("news-lost", Side.SIDECAR, "watch dropped"),
    Mode("news-frozen", Side.SIDECAR, "watch frozen"),
    Mode("news-late", Side.SIDECAR, "news late"),
    Mode("news-repeated", Side.SIDECAR, "news repeated"),
    Mode("news-malformed", Side.SIDECAR, "news malformed"),
    Mode("news-refused", Side.SIDECAR, "no watch"),
)
_BEFORE_RELOAD = ("close", "pause", "flush", "open")
ENGINE = (
    Mode("operator-kill", Side.ENGINE, "operator killed"),
    Mode("sidecar-kill-before", Side.ENGINE, "sidecar killed", always=True),
    Mode("sidecar-kill-after", Side.ENGINE, "sidecar killed", always=True),
    Mode("engine-kill-before", Side.ENGINE, "engine killed"),
    Mode("engine-kill-after", Side.ENGINE, "engine killed"),
    Mode("engine-500", Side.ENGINE, "engine fails", steps=_BEFORE_RELOAD),
    Mode("engine-fails", Side.ENGINE, "engine fails", steps=("reload", "probe"), may_fail=True),
    Mode("engine-hangs", Side.ENGINE, "engine hangs", steps=_BEFORE_RELOAD),
)
MODES = {(mode.side, mode.name): mode for mode in (*API, *SIDECAR, *ENGINE)}
_ANSWERS_BADLY = {"engine-500", "engine-hangs"}


def may_stop(plan: Plan, passed: Sequence[Place], *, is_barrier: bool) -> bool:
    """Return whether a rollout may stop safely; ``passed`` are the requests before the fault.

    A Barrier stops when one worker does not pause. An engine that fails between its reload and
    its open gate is in doubt, whatever fails.
    """
    if MODES[plan.side, plan.mode].may_fail:
        return True
    if plan.mode not in _ANSWERS_BADLY:
        return False
    steps = (place.key.split(" ") for place in passed if place.side is Side.ENGINE)
    worker = plan.key.partition(" ")[2]
    marks = [step for step, name in steps if name == worker and step in {"reload", "open"}]
    return is_barrier or marks[-1:] == ["reload"]
