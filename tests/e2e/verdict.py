"""What a rollout in which something dies must not have done to its clients. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.history import History, Reply

ENDED_BADLY = frozenset({"Failed", "RolledBack", "Held"})
_CUTTING = frozenset({"engine-core", "vllm-server"})
"""Victims with which the requests that they had are lost."""
_WITHDRAWN_S = 20.0
"""How long the cluster may lead requests to an engine that is gone: kubelet, endpoints, proxy."""
Heads = dict[str, set[tuple[int, ...]]]


@dataclass(frozen=True)
class Run:
    """What was seen of one rollout."""

    source: str
    target: str
    mode: str
    victim: str
    struck: float
    """When the victim was struck; the clients' clock."""
    withdrawn: float | None
    """When the struck worker was first seen to take no traffic."""
    phases: frozenset[str]
    """Every phase that the rollout was seen in."""
    status: Mapping[str, Any]
    history: History
    ttl_s: float
    heads: Heads = field(default_factory=dict)
    """How replies of each version began in the rollouts before."""


def is_settled(status: Mapping[str, Any], generation: int, target: str, workers: int) -> bool:
    """Return whether every worker serves the target, and the rollout to it is over."""
    conditions = {c["type"]: c["status"] for c in status.get("conditions", ())}
    rollout = status.get("rollout", {})
    serving = [w for w in status.get("workers", ()) if _serves(w, target) and w.get("ready", False)]
    return (
        status.get("observedGeneration") == generation
        and conditions.get("WeightsSynced") == "True"
        and conditions.get("Ready") == "True"
        and (rollout.get("to"), rollout.get("phase")) == (target, "Completed")
        and len(serving) == len(status.get("workers", ())) == workers
    )


def _serves(worker: Mapping[str, Any], target: str) -> bool:
    return (worker["phase"], worker.get("version")) == ("Serving", target)


def violations(run: Run) -> list[str]:
    """Say what the run did that it must not."""
    return [*_of_rollout(run), *_of_losses(run), *_of_answers(run)]


def _of_rollout(run: Run) -> Iterator[str]:
    if bad := run.phases & ENDED_BADLY:
        yield f"the rollout was {', '.join(sorted(bad))}"
    past = [one for one in run.status.get("history", ()) if one["to"] == run.target]
    if past and past[0]["result"] in ENDED_BADLY:
        yield f"the rollout is on record as {past[0]['result']}: {past[0].get('message', '')}"


def _of_losses(run: Run) -> Iterator[str]:
    lost = run.history.lost
    if unexcused := [reply for reply in lost if not _is_of_victim(run, reply)]:
        first = unexcused[0]
        when = f"{first.sent - run.struck:+.1f} to {first.ended - run.struck:+.1f} s of the kill"
        why = first.error or first.finish
        yield f"{len(unexcused)} requests lost, the first from {when}: {why}"
    if silent := run.history.unfinished - {reply.id for reply in lost}:
        yield f"{len(silent)} requests never ended"
    if slow := [r for r in run.history.replies if r.ended - r.sent > run.ttl_s]:
        longest = max(reply.ended - reply.sent for reply in slow)
        yield f"{len(slow)} requests took longer than {run.ttl_s:.0f} s, up to {longest:.0f} s"


def _is_of_victim(run: Run, lost: Reply) -> bool:
    """Return whether a request was at the killed process, or on its way there."""
    if run.victim not in _CUTTING or lost.ended < run.struck:
        return False
    end = run.struck + _WITHDRAWN_S if run.withdrawn is None else run.withdrawn + 1
    return lost.sent <= min(end, run.struck + _WITHDRAWN_S)


def _of_answers(run: Run) -> Iterator[str]:
    answered = [reply for reply in run.history.replies if not reply.error]
    if unreported := [reply for reply in answered if not reply.is_reported_in_full]:
        yield f"{len(unreported)} replies lack the version of a token: {unreported[0]}"
    if run.mode != "Keep" and run.history.mixed:
        yield f"{len(run.history.mixed)} replies of two versions in mode {run.mode}"
    if strange := run.history.versions - {run.source, run.target}:
        yield f"answers of {', '.join(sorted(strange))}"
    for version, heads in run.history.heads().items():
        for other, known in (run.heads | run.history.heads()).items():
            if other != version and heads & known:
                yield f"what is said to be of {version} begins as {other} does"


def learned(heads: Heads, history: History) -> Heads:
    """Return how replies of each version begin, as far as it is known now."""
    found = {version: set(known) for version, known in heads.items()}
    for version, known in history.heads().items():
        found.setdefault(version, set()).update(known)
    return found
