"""What trainers say to the fleet API, and what they hear: models, and what is read of them.

Requests forbid unknown fields. Every reply has `status`, ok or error, beside the HTTP code,
because some clients look at the one and some at the other.
"""

import re
from typing import Any, Literal

from pydantic import Field, ValidationError

from rlfleet_contract.paths import BASE_VERSION, VERSION_PATTERN
from rlfleet_contract.schema import ContractReply, ContractRequest
from rlfleet_contract.worker.problems import FINAL, RETRY, ErrorCode
from rlfleet_contract.worker.target import Target
from rlfleet_operator.core.model.world import Fleet, Raw, time_of
from rlfleet_operator.core.rollout.version_order import too_old
from rlfleet_operator.crd.fleet_spec import WeightsSpec
from rlfleet_operator.crd.fleet_status import TrainerPause

_DAY_S = 86_400.0
_OWNER_LIMIT = 200


class Fault(ErrorCode):
    """Why a trainer's request was not granted; stands in the reply's `code`."""

    UNAUTHORIZED = "Unauthorized", FINAL, 401
    NOT_FOUND = "NotFound", FINAL, 404
    INVALID_REQUEST = "InvalidRequest", FINAL, 400
    VERSION_OWNED = "VersionOwned", FINAL, 409
    """The spec names the version: it is another's to change."""
    DRY_RUN = "DryRun", FINAL, 409
    STALE_TARGET = "StaleTarget", FINAL, 409
    """spec.staleness lets no worker take traffic with the version."""
    SUPERSEDED = "Superseded", FINAL, 409
    NO_WORKERS = "NoWorkers", RETRY, 503
    NOT_PROVED = "NotProved", RETRY, 502
    """Some workers did not prove the version."""
    ROLLOUT_RUNS = "RolloutRuns", FINAL, 409, 503
    """A rollout changes the workers: what was asked for would cross it."""
    NOT_PAUSED = "NotPaused", FINAL, 409
    """No trainer has paused the fleet."""
    NOT_RESUMABLE = "NotResumable", FINAL, 409
    """Workers are in doubt, or hold another version than their trainer asked for."""
    INCOMPLETE = "Incomplete", RETRY, 502
    """Some workers did not do what was asked for."""
    INVALID_OBJECT = "InvalidObject", FINAL, 409
    """The fleet's spec or status cannot be parsed."""
    UNAVAILABLE = "Unavailable", RETRY, 503
    INTERNAL = "Internal", RETRY, 500


class Refusal(Exception):  # noqa: N818 - a refusal is no accident
    """A request that is not granted, in the trainer's words."""

    def __init__(self, fault: Fault, message: str) -> None:
        """Keep the fault, and what was seen, what was expected, what to do."""
        super().__init__(message)
        self.fault, self.message = fault, message


class UpdateWeights(ContractRequest):
    """The body of POST update_weights: a version by its name, or by its directory."""

    version: str | None = None
    """The name that replaces {version} in spec.weights.path, or `base`."""
    weight_dir: str | None = None
    """The version's directory, as the workers see it: spec.weights.path with a name in it."""
    timeout_s: float | None = Field(default=None, gt=0, le=_DAY_S)
    """How long to wait for the end, in seconds; None: spec.rollout.progressDeadlineSeconds.
    The rollout goes on after it, and the same request waits for it again."""

    @property
    def is_nothing(self) -> bool:
        """Whether it says that there is nothing to load: trainers which send weights do."""
        return "weight_dir" in self.model_fields_set and not self.weight_dir and not self.version


class Rejection(ContractReply):
    """The reply to a request that is not granted."""

    status: Literal["error"] = "error"
    code: Fault
    message: str
    retryable: bool


class WorkerSaid(ContractReply):
    """One worker, by its own word of this moment."""

    name: str
    status: Literal["ok", "error"]
    """In the reply to update_weights: whether it proved the version; else whether it answered."""
    ready: bool
    """Whether it takes traffic, by its pod."""
    stage: str | None = None
    """Where it stands in its sidecar's table; None when it did not answer."""
    version: str | None = None
    """The version that it proved."""
    paused: bool | None = None
    """Whether its gate is closed for a change."""
    in_flight: int | None = None
    """Requests inside its engine or waiting at its gate."""
    message: str | None = None
    """What is wrong with it, if anything is known to be."""


class RolloutSaid(ContractReply):
    """The newest rollout on record."""

    id: int
    to: str
    phase: str
    message: str


class Updated(ContractReply):
    """The reply to POST update_weights once its end is known, good or bad.

    To one that names no directory `version` is what every worker proved, null if they differ.
    """

    status: Literal["ok", "error"]
    code: Fault | None = None
    message: str
    retryable: bool = False
    version: str | None
    rollout: RolloutSaid | None
    workers: list[WorkerSaid]


class FleetSaid(ContractReply):
    """The reply to GET state."""

    status: Literal["ok"] = "ok"
    namespace: str
    fleet: str
    ready: bool
    """Whether every worker takes traffic with a proved version, and there is one."""
    paused: bool
    """Whether the gate of every worker is closed for a change, and there is one."""
    paused_by: Literal["trainer"] | None = None
    """Set while a trainer has paused the fleet, whether all workers have paused or not."""
    paused_until: str | None = None
    """When that ends of itself."""
    in_flight: int
    """Requests inside the engines or at their gates, of the workers that answered."""
    desired_version: str | None
    """The version that is asked for; None if nobody asks for one."""
    desired_by: Literal["spec", "trainer"] | None
    """Who asks for it: spec.weightVersion, or a trainer."""
    applied_version: str | None
    """The version that every worker proved; None while they differ or one did not answer."""
    rollout: RolloutSaid | None
    workers: list[WorkerSaid]


# --- what a request asks for ----------------------------------------------------------------------


def update_from(body: bytes) -> UpdateWeights:
    """Read the body of an update; raises Refusal that names the field."""
    try:
        return UpdateWeights.model_validate_json(body or b"{}")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        raise _invalid(f"{where}: {first['msg']}") from error


def version_asked(asked: UpdateWeights, fleet: Fleet) -> str:
    """Return the version that a request names; raises Refusal when it names none or two."""
    weights = fleet.spec.weights
    named = _name_of_directory(asked.weight_dir, weights) if asked.weight_dir else None
    names = {name for name in (asked.version, named) if name is not None}
    if len(names) > 1:
        raise _invalid(f"version is {asked.version!r} and weight_dir means {named!r}")
    if not names:
        raise _invalid(
            "it names no version: send version, or weight_dir with the directory of one. Weights"
            " that a trainer sends into the engines' group go to each worker's own address"
        )
    (version,) = names
    if re.fullmatch(VERSION_PATTERN, version) is None:
        raise _invalid(f"version {version[:140]!r} is not one directory name: {VERSION_PATTERN}")
    if weights is None and version != BASE_VERSION:
        raise _invalid(f"version {version}: the fleet's spec has no weights.path to find it by")
    return version


def _name_of_directory(directory: str, weights: WeightsSpec | None) -> str:
    """Return the version whose directory this is."""
    if weights is None:
        raise _invalid("weight_dir: the fleet's spec has no weights.path to find it by")
    path = weights.path
    before, after = path.rstrip("/").split("{version}")
    given = directory.rstrip("/")
    name = given.removeprefix(before).removesuffix(after)
    if before + name + after != given or "/" in name or not name:
        raise _invalid(f"weight_dir {directory[:300]!r} is not {path} with a version in it")
    return name


def _invalid(message: str) -> Refusal:
    return Refusal(Fault.INVALID_REQUEST, message)


def demand_free(fleet: Fleet, raw: Raw, version: str) -> None:
    """Raise Refusal unless a trainer may ask this fleet for a version now."""
    undone = f"{version} was not recorded"
    demand_unowned(fleet, raw, undone)
    if fleet.spec.rollout.dry_run:
        raise Refusal(Fault.DRY_RUN, f"spec.rollout.dryRun is set: {undone}. Unset it")
    why = too_old(version, fleet.spec.staleness)
    if why is not None:
        raise Refusal(Fault.STALE_TARGET, f"{undone}: {why}")


def demand_unowned(fleet: Fleet, raw: Raw, undone: str) -> None:
    """Raise Refusal unless this fleet is its trainer's, and has a worker."""
    spec = fleet.spec
    if fleet.deleting:
        raise Refusal(Fault.NOT_FOUND, f"fleet {fleet.name} is being deleted")
    if spec.weight_version is not None:
        owner = owner_of_version(raw)
        who = f", written by {owner}" if owner else ""
        raise Refusal(
            Fault.VERSION_OWNED,
            f"the spec owns the version: spec.weightVersion is {spec.weight_version}{who};"
            f" {undone}. Change it there, or take weightVersion out of the spec",
        )
    if spec.replicas == 0:
        raise Refusal(
            Fault.NO_WORKERS,
            f"the fleet has no workers: spec.replicas is 0; {undone}. Scale it up",
        )


def record_of(
    raw: Raw, version: str, moment: float, pause: TrainerPause | None = None
) -> dict[str, Any]:
    """Return the merge patch of status that puts a version on record for a trainer.

    If it has paused the fleet, the pause is about this version from now on, and its time counts
    anew. It must stay true that the API server refuses the patch unless the object, its spec
    included, is still the one that was looked at.
    """
    status: dict[str, Any] = {"trainerTarget": {"version": version, "askedAt": time_of(moment)}}
    if pause is not None:
        until = time_of(moment + pause.ttl_seconds)
        status["trainerPause"] = {"version": version, "refused": None, "until": until}
    return {"metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]}, "status": status}


def target_of(fleet: Fleet, raw: Raw) -> Target | None:
    """Return the version that a fleet is asked for, and what sets it, in words for a header."""
    if fleet.target is None:
        return None
    if fleet.spec.weight_version is None:
        return Target(fleet.target, "a trainer at the fleet API")
    manager = owner_of_version(raw)
    owner = "spec.weightVersion" + (f", written by {manager}" if manager else "")
    shown = "".join(c if c.isascii() and c.isprintable() else "?" for c in owner)
    return Target(fleet.target, shown[:_OWNER_LIMIT])


def owner_of_version(raw: Raw) -> str | None:
    """Return the field manager that wrote spec.weightVersion, the last if several did."""
    entries: list[dict[str, Any]] = raw["metadata"].get("managedFields") or []
    owners = [
        entry
        for entry in entries
        if "f:weightVersion" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    newest = max(owners, key=lambda entry: str(entry.get("time", "")), default=None)
    return None if newest is None else str(newest.get("manager", "")) or None
