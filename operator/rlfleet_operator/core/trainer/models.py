"""Requests and replies of the fleet API.

Requests forbid unknown fields. Every reply has `status`, ok or error, in addition to the HTTP
code, because some clients read only one of them.
"""

import re
from typing import Any, Literal

from pydantic import Field, ValidationError

from rlfleet_contract.paths import BASE_VERSION, VERSION_PATTERN
from rlfleet_contract.schema import ContractReply, ContractRequest
from rlfleet_contract.worker.problems import FINAL, RETRY, ErrorCode
from rlfleet_contract.worker.report import Target
from rlfleet_operator.core.model.world import Fleet, Raw, time_of
from rlfleet_operator.core.rollout.version_order import too_old
from rlfleet_operator.crd.fleet_spec import WeightsSpec
from rlfleet_operator.crd.fleet_status import TrainerPause

_DAY_S = 86_400.0
_OWNER_LIMIT = 200


class Fault(ErrorCode):
    """Why a trainer's request was not granted; stands in the reply's `code`."""

    UNAUTHORIZED = "Unauthorized", FINAL, 401
    FROM_BROWSER = "FromBrowser", FINAL, 403
    """A browser sent a request that changes something; its page only reads."""
    NOT_FOUND = "NotFound", FINAL, 404
    INVALID_REQUEST = "InvalidRequest", FINAL, 400
    VERSION_OWNED = "VersionOwned", FINAL, 409
    """spec.weightVersion or weights.follow is set, so trainers must not change the version."""
    DRY_RUN = "DryRun", FINAL, 409
    STALE_TARGET = "StaleTarget", FINAL, 409
    """spec.staleness lets no worker take traffic with the version."""
    SUPERSEDED = "Superseded", FINAL, 409
    NO_WORKERS = "NoWorkers", RETRY, 503
    NOT_PROVED = "NotProved", RETRY, 502
    """Some workers did not prove the version."""
    ROLLOUT_RUNS = "RolloutRuns", FINAL, 409, 503
    """An active rollout changes the workers, and the request would interfere."""
    NOT_PAUSED = "NotPaused", FINAL, 409
    """No trainer has paused the fleet."""
    NOT_RESUMABLE = "NotResumable", FINAL, 409
    """Workers are in doubt, or have another version than the trainer requested."""
    INCOMPLETE = "Incomplete", RETRY, 502
    """Some workers did not carry out the request."""
    INVALID_OBJECT = "InvalidObject", FINAL, 409
    """The fleet's spec or status cannot be parsed."""
    UNAVAILABLE = "Unavailable", RETRY, 503
    INTERNAL = "Internal", RETRY, 500


class Refusal(Exception):  # noqa: N818 - a refusal is no accident
    """A rejected request of a trainer."""

    def __init__(self, fault: Fault, message: str) -> None:
        """Take the code, and a message with what failed and what to do."""
        super().__init__(message)
        self.fault, self.message = fault, message


class UpdateWeights(ContractRequest):
    """The body of POST update_weights: a version by its name, or by its directory."""

    version: str | None = None
    """The name that replaces {version} in spec.weights.path, or `base`."""
    weight_dir: str | None = None
    """The version's directory, as the workers see it: spec.weights.path with a name in it."""
    timeout_s: float | None = Field(default=None, gt=0, le=_DAY_S)
    """Seconds to wait for the end; default: spec.rollout.progressDeadlineSeconds.
    The rollout continues after it, and the same request waits for it again."""

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing to load, as in the updates of trainers that send tensors."""
        return "weight_dir" in self.model_fields_set and not self.weight_dir and not self.version


class Rejection(ContractReply):
    """The reply to a rejected request."""

    status: Literal["error"] = "error"
    code: Fault
    message: str
    retryable: bool


class WorkerReply(ContractReply):
    """One worker, as its sidecar reports it now."""

    name: str
    status: Literal["ok", "error"]
    """In the reply to update_weights: whether it proved the version; else whether it answered."""
    ready: bool
    """Whether it takes traffic, by its pod."""
    stage: str | None = None
    """Its stage in the sidecar's table; None if it did not answer."""
    version: str | None = None
    """The version that it proved."""
    paused: bool | None = None
    """Whether its gate is closed for a change."""
    in_flight: int | None = None
    """Requests inside its engine or waiting at its gate."""
    message: str | None = None
    """What is wrong with it; None if nothing is known."""


class RolloutReply(ContractReply):
    """The newest rollout in status."""

    id: int
    to: str
    phase: str
    message: str


class Updated(ContractReply):
    """The reply to POST update_weights after its end, with success or not.

    Without a directory in the request, `version` is what every worker proved, null if they differ.
    """

    status: Literal["ok", "error"]
    code: Fault | None = None
    message: str
    retryable: bool = False
    version: str | None
    rollout: RolloutReply | None
    workers: list[WorkerReply]


class FleetReply(ContractReply):
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
    """When that ends without another request."""
    in_flight: int
    """Requests inside the engines or at their gates, of the workers that answered."""
    desired_version: str | None
    """The requested version; None without one."""
    desired_by: Literal["spec", "trainer"] | None
    """Whether spec.weightVersion or a trainer sets it."""
    applied_version: str | None
    """The version that every worker proved; None while they differ or one did not answer."""
    rollout: RolloutReply | None
    workers: list[WorkerReply]


# --- what a request means -------------------------------------------------------------------------


def update_from(body: bytes) -> UpdateWeights:
    """Return the parsed body of an update; raises Refusal, which names the field."""
    try:
        return UpdateWeights.model_validate_json(body or b"{}")
    except ValidationError as error:
        raise unparsable(error) from error


def unparsable(error: ValidationError) -> Refusal:
    """Return the rejection of a request that cannot be parsed, with its first invalid field."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"])) or "the body"
    return _invalid(f"{where}: {first['msg']}")


def version_asked(asked: UpdateWeights, fleet: Fleet) -> str:
    """Return the version that a request names; raises Refusal if it names none or two."""
    weights = fleet.spec.weights
    named = _name_of_directory(asked.weight_dir, weights) if asked.weight_dir else None
    names = {name for name in (asked.version, named) if name is not None}
    if len(names) > 1:
        raise _invalid(f"version {asked.version!r} differs from weight_dir's {named!r}; send one")
    if not names:
        raise _invalid(
            "the request names no version: send version, or weight_dir with its directory. To send"
            " tensors, use each worker's own address"
        )
    (version,) = names
    if re.fullmatch(VERSION_PATTERN, version) is None:
        raise _invalid(f"version {version[:140]!r} is not a directory name ({VERSION_PATTERN})")
    if weights is None and version != BASE_VERSION:
        raise _invalid(f"version {version} cannot be found: set spec.weights.path or source")
    return version


def _name_of_directory(directory: str, weights: WeightsSpec | None) -> str:
    """Return the version of a directory; raises Refusal if it is not below weights.path."""
    if weights is None:
        raise _invalid("weight_dir cannot be mapped to a version: set spec.weights.path")
    path = weights.template
    before, after = path.rstrip("/").split("{version}")
    given = directory.rstrip("/")
    name = given.removeprefix(before).removesuffix(after)
    if before + name + after != given or "/" in name or not name:
        raise _invalid(f"weight_dir: got {directory[:300]!r}, expected {path} with a version")
    return name


def _invalid(message: str) -> Refusal:
    return Refusal(Fault.INVALID_REQUEST, message)


def demand_free(fleet: Fleet, raw: Raw, version: str) -> None:
    """Raise Refusal unless a trainer may request a version of this fleet now."""
    rejected = f"version {version} rejected"
    demand_unowned(fleet, raw, rejected)
    if fleet.spec.rollout.dry_run:
        raise Refusal(Fault.DRY_RUN, f"{rejected}: spec.rollout.dryRun is true; set it to false")
    why = too_old(version, fleet.spec.staleness)
    if why is not None:
        raise Refusal(Fault.STALE_TARGET, f"{rejected}: {why}")


def demand_unowned(fleet: Fleet, raw: Raw, rejected: str) -> None:
    """Raise Refusal unless trainers may drive this fleet, and it has a worker."""
    spec = fleet.spec
    if fleet.deleting:
        raise Refusal(Fault.NOT_FOUND, f"{rejected}: fleet {fleet.name} is being deleted")
    if spec.weight_version is not None:
        manager = owner_of_version(raw)
        written_by = f", written by {manager}" if manager else ""
        raise Refusal(
            Fault.VERSION_OWNED,
            f"{rejected}: spec.weightVersion is {spec.weight_version}{written_by};"
            " change it there, or remove it from the spec",
        )
    if fleet.follows:
        raise Refusal(
            Fault.VERSION_OWNED,
            f"{rejected}: spec.weights.follow is Latest, so workers take the store's newest"
            " version; publish it there, or set follow to Never",
        )
    if spec.replicas == 0:
        message = f"{rejected}: the fleet has no workers, spec.replicas is 0; scale it up"
        raise Refusal(Fault.NO_WORKERS, message)


def record_of(
    raw: Raw, version: str, moment: float, pause: TrainerPause | None = None
) -> dict[str, Any]:
    """Return the merge patch of status that records a trainer's version.

    It also makes the trainer's pause, if any, about this version, and extends it. It must stay
    true that the API server rejects the patch if the object has changed since it was read.
    """
    status: dict[str, Any] = {"trainerTarget": {"version": version, "askedAt": time_of(moment)}}
    if pause is not None:
        until = time_of(moment + pause.ttl_seconds)
        status["trainerPause"] = {"version": version, "refused": None, "until": until}
    return {"metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]}, "status": status}


def target_of(fleet: Fleet, raw: Raw) -> Target | None:
    """Return a fleet's target and what sets it, as text for a header."""
    if fleet.target is None:
        return None
    if fleet.spec.weight_version is None:
        owner = "spec.weights.follow" if fleet.follows else "a trainer at the fleet API"
        return Target(fleet.target, owner)
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
