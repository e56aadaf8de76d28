"""The steps that replace a fleet's token, as changes of its Secret. Pure.

At rest the Secret has `token`. Staged, it has `next` too: all accept both, all send the old one.
Switched, `token` is the new one and `previous` the old one: all accept both, all send the new one.
A step may begin only when everybody knows the one before, which `revision` shows.
"""

import base64
from copy import deepcopy
from enum import StrEnum

from rlfleet_kubectl.errors import PluginError
from rlfleet_view.fleet import RawObject

TOKEN, NEXT, PREVIOUS, REVISION = "token", "next", "previous", "revision"
FLEET_LABEL = "rlfleet.dev/fleet"


class RotationStep(StrEnum):
    """How far a rotation is."""

    AT_REST = "AtRest"
    STAGED = "Staged"
    SWITCHED = "Switched"


def secret_name(fleet: str) -> str:
    """Return the name of the Secret with a fleet's token."""
    return f"{fleet}-admin"


def demand_secret_of(secret: RawObject, fleet: str) -> None:
    """Raise PluginError unless this is the Secret of the fleet, with a token."""
    labels = secret["metadata"].get("labels") or {}
    if labels.get(FLEET_LABEL) != fleet or not _data(secret).get(TOKEN):
        name = secret["metadata"]["name"]
        raise PluginError(
            f"Secret {name} holds no token of fleet {fleet};"
            f" see the fleet's conditions: kubectl rlf status {fleet}"
        )


def step_of(secret: RawObject) -> RotationStep:
    """Return how far the rotation is."""
    data = _data(secret)
    if data.get(NEXT):
        return RotationStep.STAGED
    return RotationStep.SWITCHED if data.get(PREVIOUS) else RotationStep.AT_REST


def revision_of(secret: RawObject) -> str:
    """Return the revision; empty before the first rotation."""
    return base64.b64decode(_data(secret).get(REVISION) or "").decode("ascii", "replace").strip()


def staged(secret: RawObject, token: str) -> RawObject:
    """Return the Secret with another token that is accepted, and not sent yet."""
    return _changed(secret, {NEXT: base64.b64encode(token.encode()).decode()})


def switched(secret: RawObject) -> RawObject:
    """Return the Secret with the other token as the one to send."""
    data = _data(secret)
    return _changed(secret, {TOKEN: data[NEXT], PREVIOUS: data[TOKEN], NEXT: None})


def finished(secret: RawObject) -> RawObject:
    """Return the Secret without the old token."""
    return _changed(secret, {PREVIOUS: None})


def _changed(secret: RawObject, changes: dict[str, str | None]) -> RawObject:
    known = revision_of(secret)
    revision = str(int(known) + 1 if known.isdecimal() else 1)
    made = deepcopy(secret)
    changed = _data(secret) | changes | {REVISION: base64.b64encode(revision.encode()).decode()}
    made["data"] = {key: value for key, value in changed.items() if value is not None}
    return made


def _data(secret: RawObject) -> dict[str, str | None]:
    return dict(secret.get("data") or {})
