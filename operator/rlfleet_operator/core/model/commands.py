"""Commands that every strategy sends, with the conditions under which a worker may get them."""

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.actions import Prepare, Resume, Update
from rlfleet_operator.core.model.world import Worker, World


def is_prepared(worker: Worker, version: str) -> bool:
    """Return whether a worker can load a version at once, or has loaded and proved it."""
    if worker.stage is Stage.PROVED and worker.proved == version:
        # It only has to open its gate; a worker without a cache may have lost the prepared copy.
        return True
    return worker.report is not None and worker.report.prepared == version


def is_able(worker: Worker, version: str) -> bool:
    """Return whether a worker serves a version or can load it at once."""
    return worker.proved == version or is_prepared(worker, version)


def may_call(worker: Worker, version: str, operation: str, world: World) -> bool:
    """Return whether a command for a version may be sent now.

    The back-off of a failed command delays only its own retry, not a different command. A worker
    that rejects the new version and the old one tries them in turn: it delays both.
    """
    about = version, operation
    is_it = worker.calling_for == about or worker.rejection_of(*about) is not None
    has_to_wait = is_it and worker.waits_to_retry(world.moment)
    return not worker.is_busy and not worker.is_adapting and not has_to_wait


def prepare(
    worker: Worker,
    version: str,
    operation: str,
    world: World,
    *,
    waits: bool = True,
    is_bound: bool = False,
) -> list[Prepare]:
    """Return the command to prepare a version; empty while it runs or has to wait for a retry.

    A paused worker resumes before it prepares, because a prepare takes as long as the disk does.
    It prepares while paused only if it has proved nothing, if a trainer has paused it, or if
    ``is_bound``: the other workers already have the version.
    """
    is_stuck = worker.is_kept or worker.proved is None or is_bound
    is_due = (
        (is_stuck or worker.stage is not Stage.PAUSED)
        and not worker.is_preparing(version, operation)
        and may_call(worker, version, operation, world)
    )
    if not is_due:
        return []
    return [Prepare(worker.name, version, operation, _digest(version, world), waits)]


def _digest(version: str, world: World) -> str | None:
    """Return the spec's digest, which applies to the spec's version only."""
    spec = world.fleet.spec
    return spec.weights.digest if spec.weights and version == spec.weight_version else None


def update(
    worker: Worker, version: str, operation: str, world: World, through: Verb = Verb.RESUME
) -> list[Update]:
    """Return the command of a change, with the proof of a peer to compare with."""
    if not may_call(worker, version, operation, world):
        return []
    template = worker.pod.template_hash if worker.pod else ""
    proof = world.proofs.get((version, template))
    return [Update(worker.name, version, operation, proof, through)]


def resume(worker: Worker, operation: str, world: World) -> list[Resume]:
    """Return the command to serve the proved version; empty while a command is under way."""
    version = worker.proved
    if version is None or not may_call(worker, version, operation, world):
        return []
    return [Resume(worker.name, version, operation)]
