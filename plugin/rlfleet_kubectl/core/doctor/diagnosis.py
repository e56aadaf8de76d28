"""All checks of an installation and of its fleets, in one list of findings."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rlfleet_kubectl.core.doctor import (
    access,
    commands,
    fleets,
    installation,
    network,
    pods,
    storage,
)
from rlfleet_kubectl.core.doctor.access import Answer
from rlfleet_kubectl.core.doctor.finding import Finding, grouped
from rlfleet_kubectl.core.doctor.scene import FleetScene, Scene, SecretKeys
from rlfleet_kubectl.core.names import FLEETS
from rlfleet_view.fleet import ObservedFleet, RawObject
from rlfleet_view.reasons import Reasons


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What the plugin brings along."""

    release: str
    fields: frozenset[str]
    """Of the definition of this release."""
    reasons: Reasons


@dataclass(frozen=True, slots=True)
class Examined:
    """What kubectl returned for one run."""

    operator: Scene
    spaces: Sequence[Scene]
    """Namespaces with fleets."""
    secrets: Mapping[str, SecretKeys | None]
    """By namespace; None where they could not be read."""
    definition: RawObject | None
    is_definition_known: bool
    of_user: Sequence[Answer]
    of_operators: Mapping[str, Sequence[Answer]]
    """By the accounts of the operator's Deployments."""
    now: datetime
    only: str | None = None
    """The one fleet that was asked for."""
    elsewhere: Sequence[RawObject] = ()
    """Deployments of operators in all namespaces, as far as they could be read."""


def diagnosed(evidence: Examined, known: Knowledge) -> list[Finding]:
    """Return what is wrong, the worst first."""
    return grouped(_all(evidence, known))


def _all(seen: Examined, known: Knowledge) -> Iterator[Finding]:
    if seen.is_definition_known:
        yield from installation.of_definition(seen.definition, known.fields, seen.operator)
    yield from installation.of_operator(seen.operator, known.release, seen.now)
    for account, answers in seen.of_operators.items():
        yield from access.of_operator(answers, account, _release_of(account, seen))
    for space in seen.spaces:
        yield from _of_space(space, seen, known)
    yield from access.of_user(seen.of_user)
    for scene in (seen.operator, *seen.spaces):
        yield from installation.unread(scene)


def _release_of(account: str, seen: Examined) -> str:
    """Return the release of the Deployments that run as an account."""
    every = seen.operator.of("deployments")
    return commands.release_in([one for one in every if access.account_of(one) == account])


def _of_space(space: Scene, seen: Examined, known: Knowledge) -> Iterator[Finding]:
    found = fleets_of(space, seen.only)
    if found:
        yield from installation.of_namespace(space.namespace, seen.operator, seen.elsewhere)
    for fleet in found:
        scene = FleetScene(fleet, space, seen.operator, seen.secrets.get(space.namespace), seen.now)
        claims = list(storage.of_fleet(scene))
        yield from claims
        for pod in scene.pods():
            for one in pods.of_pod(pod, space, seen.now):
                if not (claims and pods.waits_for_claim(one)):
                    yield one
        yield from fleets.of_fleet(scene, known.reasons)
        yield from network.of_fleet(scene)
        yield from network.of_names(scene)


def fleets_of(space: Scene, only: str | None) -> list[ObservedFleet]:
    """Return the fleets of a namespace, or the one that was asked for."""
    found = [ObservedFleet(raw) for raw in space.of(FLEETS)]
    return [one for one in found if only in {None, one.name}]
