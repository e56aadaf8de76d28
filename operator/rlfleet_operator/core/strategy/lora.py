"""Which LoRA adapters a worker lacks, and the next command about one. Pure.

It must stay true that no worker gets an adapter's command while its weights change, and that an
adapter that fails to load blocks nothing else.
"""

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.loaded_lora import AdapterReport
from rlfleet_contract.worker.problems import CHECKPOINT_CODES, Code, Problem
from rlfleet_operator.core.model.actions import LoadAdapter, LoRACommand, UnloadAdapter
from rlfleet_operator.core.model.wanted_lora import WantedLoRA, declared
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.strategy import barrier
from rlfleet_operator.crd.fleet_spec import FleetSpec
from rlfleet_operator.crd.lora import LORA_FLAG, AdapterStatus

_MESSAGE_LIMIT = 512


def calls(world: World, busy: set[str]) -> list[LoRACommand]:
    """Return at most one command for each worker that has no other command.

    None while a trainer or a Barrier closes all gates: the other workers would wait for it.
    """
    if world.pause is not None or barrier.closes(world):
        return []
    return [
        call
        for worker in _concerned(world)
        if worker.name not in busy and _may_call(worker)
        for call in _next(worker, world)[:1]
    ]


def _concerned(world: World) -> Sequence[Worker]:
    """Return the workers that may lack an adapter, or have one too many."""
    return world.desired if world.fleet.spec.adapters else world.exceptional


def wanted_by(worker: Worker, world: World) -> Sequence[WantedLoRA]:
    """Return the adapters that a worker must serve: the spec's, else those that others serve."""
    spec = world.fleet.spec.adapters
    if spec:
        return declared(spec)
    is_new = worker.pod is not None and not worker.pod.weights_ready
    if not is_new or not world.inherited or awaits_reports(worker, world):
        return ()
    return world.inherited


def lacking(worker: Worker, world: World) -> WantedLoRA | None:
    """Return an adapter without which a worker must not begin to take traffic.

    An adapter that failed to load does not keep a worker from serving the model, unless it has
    the model's own name: the model must not answer in its place.
    """
    model = world.fleet.spec.model.name
    return next(
        (one for one, problem in _lacked(worker, world) if one.name == model or problem is None),
        None,
    )


def _lacked(worker: Worker, world: World) -> list[tuple[WantedLoRA, Problem | None]]:
    """Return the wanted adapters that a worker does not serve, with the failure if it tried."""
    reported = _reported(worker)
    return [
        (one, _failure(reported.get(one.name), one))
        for one in wanted_by(worker, world)
        if not _is_loaded(reported.get(one.name), one)
    ]


def may_inherit(spec: FleetSpec) -> bool:
    """Return whether new workers get the adapters that trainers loaded on the others."""
    return not spec.adapters and LORA_FLAG in {a.replace("_", "-") for a in spec.engine.args}


def awaits_reports(worker: Worker, world: World) -> bool:
    """Return whether other workers may serve a trainer's adapter that they have not reported yet.

    Idle workers are polled only every few seconds. A new worker needs a report of each that is
    newer than its own open gate.
    """
    if not may_inherit(world.fleet.spec):
        return False
    others = (w for w in world.desired if w.is_live and w.pod and w.pod.weights_ready)
    return any(other.answered_at < worker.open_since for other in others)


def is_loaded(worker: Worker, wanted: WantedLoRA) -> bool:
    """Return whether a worker serves exactly this adapter, as the spec's.

    Under the name of an inherited adapter, any version counts: a trainer may have replaced it.
    """
    return _is_loaded(_reported(worker).get(wanted.name), wanted)


def _is_loaded(found: AdapterReport | None, wanted: WantedLoRA) -> bool:
    if found is None or wanted.inherited is not None:
        return found is not None and found.version is not None
    return (
        found.is_loaded
        and found.is_declared
        and (found.version, found.path) == (wanted.version, wanted.directory)
    )


def _failure(found: AdapterReport | None, wanted: WantedLoRA) -> Problem | None:
    """Return why a worker could not load exactly this adapter; None if it has not tried."""
    return _problem_in(found, operation_of(wanted))


def _problem_in(found: AdapterReport | None, operation: str) -> Problem | None:
    problem = found.problem if found else None
    return problem if problem and problem.operation == operation else None


def operation_of(wanted: WantedLoRA) -> str:
    """Return the operation of an adapter, unique for its version, directory and bytes."""
    text = f"{wanted.name}\0{wanted.version}\0{wanted.directory}\0{wanted.inherited or ''}"
    return f"adapter-{sha256(text.encode()).hexdigest()[:16]}"


def missing(world: World) -> list[tuple[Worker, WantedLoRA]]:
    """Return the adapters that are neither loaded nor failed, with their workers."""
    return [
        (worker, one)
        for worker in _concerned(world)
        for one, problem in _lacked(worker, world)
        if problem is None or _is_of_old_template(worker, problem, world)
    ]


def failed(world: World) -> list[tuple[Worker, WantedLoRA, Problem]]:
    """Return the adapters that failed to load, with their workers."""
    return [
        (worker, one, problem)
        for worker in _concerned(world)
        for one, problem in _lacked(worker, world)
        if problem is not None and not _is_of_old_template(worker, problem, world)
    ]


def _is_of_old_template(worker: Worker, problem: Problem, world: World) -> bool:
    """Return whether an engine rejected an adapter, and one with other arguments replaces it.

    An adapter often comes with its arguments: --enable-lora, a higher --max-lora-rank.
    """
    return problem.code == Code.ADAPTER_FAILED and world.is_outdated(worker)


def statuses(world: World) -> list[AdapterStatus]:
    """Return the state of each of the spec's adapters on all workers."""
    all_wanted = declared(world.fleet.spec.adapters)
    if not all_wanted:
        return []
    lacking = Counter(one for w in world.desired for one, _ in _lacked(w, world))
    first: dict[WantedLoRA, tuple[Worker, Problem]] = {}
    for worker, one, problem in failed(world):
        first.setdefault(one, (worker, problem))
    count = len(world.desired)
    return [_status(one, count, count - lacking[one], first.get(one)) for one in all_wanted]


def _status(
    wanted: WantedLoRA, workers: int, loaded: int, failure: tuple[Worker, Problem] | None
) -> AdapterStatus:
    reason, message = "", ""
    if failure is not None:
        worker, problem = failure
        reason, message = str(problem.code), f"{worker.name}: {problem.message}"
    return AdapterStatus(
        name=wanted.name,
        version=wanted.version,
        loaded_workers=loaded,
        workers=workers,
        reason=reason,
        message=message[:_MESSAGE_LIMIT],
    )


def served_by(worker: Worker) -> list[str] | None:
    """Return the adapters that a worker serves, as name=version; None if none."""
    if not worker.is_live or worker.report is None:
        return None
    return [f"{one.name}={one.version}" for one in worker.report.adapters if one.is_loaded] or None


def _reported(worker: Worker) -> dict[str, AdapterReport]:
    """Return a worker's reported adapters by name."""
    if not worker.is_live or worker.report is None:
        return {}
    return {one.name: one for one in reversed(worker.report.adapters)}


def _may_call(worker: Worker) -> bool:
    is_free = worker.calling is None and not worker.is_changing and not worker.is_adapting
    running = worker.report.running if worker.report else None
    is_preparing = running is not None and running.verb is Verb.PREPARE
    return worker.is_open and is_free and not is_preparing


def _next(worker: Worker, world: World) -> list[LoRACommand]:
    """Return the commands that are due, in order: those that failed come last, and wait.

    If no report shows the last failure, as of an engine that does not answer, the next command
    would fail too: all wait.
    """
    fresh: list[LoRACommand] = []
    failed_before: list[LoRACommand] = []
    for command, problem in (*_unloads(worker, world), *_loads(worker, world)):
        (fresh if problem is None else failed_before).append(command)
    if not worker.waits_to_retry(world.moment):
        return _from_turn(fresh, worker) + _from_turn(failed_before, worker)
    return [] if any(_is_last(one, worker) for one in fresh) else fresh


def _unloads(worker: Worker, world: World) -> list[tuple[LoRACommand, Problem | None]]:
    """Return the commands to unload what left the spec, with the failure if it was tried."""
    names = {one.name for one in wanted_by(worker, world)}
    left = [
        one
        for one in (worker.report.adapters if worker.report else ())
        if one.is_declared and one.name not in names
    ]
    return [
        (
            UnloadAdapter(worker.name, one.name, one.version or one.name, operation),
            _problem_in(one, operation),
        )
        for one in left
        for operation in [f"adapter-{one.name}"[:128]]
    ]


def _loads(worker: Worker, world: World) -> list[tuple[LoRACommand, Problem | None]]:
    """Return the commands to load what is lacking, with the failure if it was tried."""
    return [
        (
            LoadAdapter(
                worker.name, one.name, one.version, one.directory, operation_of(one), one.inherited
            ),
            problem,
        )
        for one, problem in _lacked(worker, world)
        if _is_worth_trying(problem)
    ]


def _from_turn(commands: list[LoRACommand], worker: Worker) -> list[LoRACommand]:
    """Return the commands with the last one at the end: one that always fails keeps no other."""
    turn = next((n for n, one in enumerate(commands, 1) if _is_last(one, worker)), 0)
    return commands[turn:] + commands[:turn]


def _is_last(command: LoRACommand, worker: Worker) -> bool:
    return (command.version, command.operation) == worker.calling_for


def _is_worth_trying(problem: Problem | None) -> bool:
    """Return whether a retry may succeed: a trainer can repair the files, but not a rank."""
    return problem is None or problem.retryable or problem.code in CHECKPOINT_CODES
