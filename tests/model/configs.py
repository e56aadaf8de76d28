"""What is searched: strategies and policies, versions and faults, in bounds that end.

``quick`` and ``bounded`` are for every run of the tests, ``full`` is ``make modelcheck``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations, zip_longest
from typing import Any

from tests.model.explore import Config
from tests.model.local import Fate
from tests.model.pair import Fault

VERSIONS: Mapping[str, Fate] = {
    "base": Fate.GOOD,
    "a": Fate.GOOD,
    "b": Fate.GOOD,
    "x": Fate.BREAKS,
    "y": Fate.CRUSHES,
    "z": Fate.REFUSED,
}
EXITING: Mapping[str, Fate] = {"base": Fate.GOOD, "a": Fate.GOOD, "w": Fate.EXITS}
ROLLING: Mapping[str, Any] = {"strategy": "Rolling"}
BARRIER: Mapping[str, Any] = {"strategy": "Barrier"}
CANARY: Mapping[str, Any] = {"strategy": "Canary"}
BAD = ("x", "y", "z")
POLICIES = ("Quarantine", "Rollback", "Hold")
STRATEGIES = (ROLLING, BARRIER, CANARY)


def config(
    rules: Mapping[str, Any],
    target: str,
    *faults: Fault,
    replicas: int = 2,
    policy: str = "Quarantine",
    at_most: int = 1,
    serving: str = "a",
    out: int = 1,
    is_trainers: bool = False,
    has_cache: bool = True,
) -> Config:
    """Name a search by what is in it."""
    rollout = {"maxUnavailable": out, "onFailure": policy, **rules}
    what = " and ".join(faults) or "no fault"
    whose = ", asked by a trainer" if is_trainers else ""
    whose += "" if has_cache else ", without a cache"
    whose += "" if serving else ", being created"
    return Config(
        name=f"{rules['strategy']}, {policy}, {replicas} workers, {target}, {what}{whose}",
        replicas=replicas,
        rollout=rollout,
        fates=VERSIONS,
        serving=serving,
        target=target,
        has_cache=has_cache,
        is_trainers=is_trainers,
        faults=dict.fromkeys(faults, at_most),
        at_once=max(at_most, len([fault for fault in faults if fault is not Fault.PATCH])),
    )


def quick() -> Iterator[Config]:
    """Yield what takes seconds: every way of ending, and a lost message."""
    for rules in (ROLLING, CANARY):
        for policy in POLICIES:
            for target in BAD:
                yield config(rules, target, policy=policy)
        yield config(rules, "b", replicas=3)
    yield config(BARRIER, "x", policy="Rollback")
    yield config(ROLLING, "x", Fault.LOST)
    yield config(ROLLING, "b", is_trainers=True)
    yield config(BARRIER, "x", policy="Rollback", is_trainers=True)
    for rules in STRATEGIES:
        # A process that dies, in a load or elsewhere, leads to the target and to no failure.
        yield config(rules, "b", Fault.ENGINE, policy="Rollback", replicas=1)
    yield replace(config(ROLLING, "w"), fates=EXITING)
    for rules in (ROLLING, BARRIER):
        # A late joiner is left paused, with nothing proved and nothing prepared.
        yield config(rules, "b", Fault.SIDECAR, replicas=1, serving="", has_cache=False)


def bounded() -> Iterator[Config]:
    """Yield what takes a minute: each fault once, in Rolling; some in the others."""
    for fault in Fault:
        if fault is not Fault.PATCH:
            yield config(ROLLING, "x", fault)
    for fault in (Fault.PATCH, Fault.LOST, Fault.STALE, Fault.SILENCE, Fault.FAILURE):
        yield config(ROLLING, "b", fault)
    for fault in (Fault.CRASH, Fault.OVERDUE, Fault.FAILURE):
        yield config(CANARY, "x", fault, policy="Rollback")
    for policy in POLICIES:
        for target in ("b", *BAD):
            yield config(BARRIER, target, policy=policy)
    for fault in (Fault.PATCH, Fault.CRASH):
        yield config(ROLLING, "b", fault, is_trainers=True)
    yield config(BARRIER, "b", Fault.FAILURE)
    yield from _dying()


def _dying() -> Iterator[Config]:
    """Yield a good version that processes die with, and one that ends each engine."""
    for fault in (Fault.ENGINE, Fault.SIDECAR):
        yield config(ROLLING, "b", fault)
        yield config(BARRIER, "b", fault, replicas=1)
    yield config(ROLLING, "b", Fault.ENGINE, at_most=2, replicas=1)
    for rules in (CANARY, BARRIER):
        yield replace(config(rules, "w", replicas=1), fates=EXITING)


def full() -> Iterator[Config]:
    """Yield all, in turns: each fault with each strategy, three workers, pairs of faults."""
    singly = (_singly(ROLLING), _singly(CANARY), _singly(BARRIER))
    kinds = (*singly, _created(), _without_cache(), _three(), _pairs())
    for turn in zip_longest(*kinds):
        yield from filter(None, turn)


def _singly(rules: Mapping[str, Any]) -> Iterator[Config]:
    for target, policy in (("b", "Quarantine"), ("x", "Rollback"), ("y", "Hold")):
        for fault in Fault:
            yield config(rules, target, fault, policy=policy)
            yield config(rules, target, fault, policy=policy, is_trainers=True)


def _created() -> Iterator[Config]:
    """Yield a fleet that is asked for another version before it has served any."""
    for fault in (Fault.SIDECAR, Fault.FAILURE, Fault.CRASH):
        made = config(ROLLING, "b", fault, Fault.PATCH, replicas=1, serving="")
        yield replace(made, fates={name: VERSIONS[name] for name in ("base", "a", "b")})


def _without_cache() -> Iterator[Config]:
    for rules in STRATEGIES:
        yield config(rules, "b", Fault.SIDECAR, has_cache=False)


def _three() -> Iterator[Config]:
    for fault in Fault:
        yield config(ROLLING, "x", fault, replicas=3)
        yield config(ROLLING, "b", fault, replicas=3, out=2)
        yield config(CANARY, "b", fault, replicas=3)


def _pairs() -> Iterator[Config]:
    for pair in combinations([fault for fault in Fault if fault is not Fault.POD], 2):
        for target in ("b", "x"):
            yield config(ROLLING, target, *pair, policy="Rollback")
