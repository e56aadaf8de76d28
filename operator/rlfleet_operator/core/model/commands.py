"""Questions that every strategy asks before it sends a worker a command."""

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.actions import Prepare, Resume, Update
from rlfleet_operator.core.model.world import Worker, World


def is_prepared(worker: Worker, version: str) -> bool:
    """Tell whether a worker has checked a version and can load it at once, or has proved it."""
    if worker.stage is Stage.PROVED and worker.proved == version:
        # It is only to be opened: without a cache it may have forgotten what it prepared.
        return True
    return worker.report is not None and worker.report.prepared == version


def is_able(worker: Worker, version: str) -> bool:
    """Tell whether a worker can serve a version at once, with or without loading it."""
    return worker.proved == version or is_prepared(worker, version)


def may_call(worker: Worker, version: str, operation: str, world: World) -> bool:
    """Tell whether a command for a version may be sent now.

    Only the command that failed waits for its next try, not one that came instead of it.
    """
    is_it = worker.calling_for == (version, operation)
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
    """Return the command to prepare a version; none while it is under way or has to wait.

    Nobody prepares who is paused, because that would take as long as the disk takes: it serves
    meanwhile what it has proved. One that has proved nothing cannot; one that a trainer has
    paused, or that is bound for the version as the others are, shall not.
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
    """Return the manifest's digest, of the one version that it is about."""
    spec = world.fleet.spec
    return spec.weights.digest if spec.weights and version == spec.weight_version else None


def update(
    worker: Worker, version: str, operation: str, world: World, through: Verb = Verb.RESUME
) -> list[Update]:
    """Return the command of a change, with what other workers showed of the version."""
    if not may_call(worker, version, operation, world):
        return []
    template = worker.pod.template_hash if worker.pod else ""
    proof = world.proofs.get((version, template))
    return [Update(worker.name, version, operation, proof, through)]


def resume(worker: Worker, operation: str, world: World) -> list[Resume]:
    """Return the command to serve what is proved; none while a command is under way."""
    version = worker.proved
    if version is None or not may_call(worker, version, operation, world):
        return []
    return [Resume(worker.name, version, operation)]
