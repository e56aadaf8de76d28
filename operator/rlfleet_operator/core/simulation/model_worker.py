"""A simulated worker after each command.

A version is Good, is Refused by the checkpoint check, fails its proof (Breaks), or ends the
engine's process (Exits).
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.loaded_lora import AdapterReport
from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.proof import Evidence, Proof
from rlfleet_contract.worker.report import Change, Exits, Stage, Timings
from rlfleet_operator.core.model.actions import (
    Flush,
    LoadAdapter,
    LoRACommand,
    Pause,
    Prepare,
    Resume,
    Update,
    WeightsCommand,
)
from rlfleet_operator.core.model.world import Worker


class Effect(StrEnum):
    """The result of a version on a worker."""

    GOOD = "Good"
    REFUSED = "Refused"
    BREAKS = "Breaks"
    EXITS = "Exits"
    """The engine's process exits each time it loads the version."""


def after_lora(worker: Worker, command: LoRACommand) -> Worker:
    """Return the worker after a LoRA command; every adapter loads."""
    if worker.report is None:
        return worker
    kept = [one for one in worker.report.adapters if one.name != command.name]
    if isinstance(command, LoadAdapter):
        loaded = {"name": command.name, "version": command.version, "path": command.path}
        is_declared = command.inherited is None
        kept.append(AdapterReport(**loaded, is_loaded=True, is_declared=is_declared))
    return _reporting(worker, adapters=kept)


def after_weights(worker: Worker, command: WeightsCommand, fates: Mapping[str, Effect]) -> Worker:
    """Return the worker after a weights command."""
    match command:
        case Prepare():
            return _prepared(worker, command, fates)
        case Update():
            return _updated(worker, command, fates)
        case Resume():
            return _resumed(worker, command)
        case Pause():
            return _paused(worker)
        case Flush():
            return _reporting(worker, flushed=command.operation)


def _prepared(worker: Worker, action: Prepare, fates: Mapping[str, Effect]) -> Worker:
    if worker.report is None:
        return worker
    if fates.get(action.version, Effect.GOOD) is Effect.REFUSED:
        refusal = Problem.of(
            Code.CHECKPOINT_INVALID,
            "model.safetensors is truncated",
            version=action.version,
            operation=action.operation,
        )
        return _reporting(worker, refusal=refusal)
    return _reporting(worker, prepared=action.version, refusal=None)


def _proof(worker: Worker, version: str) -> Proof:
    return Proof(
        version=version,
        boot=(worker.report.boot if worker.report else None) or "",
        verified_by=(Evidence.PROBE,),
        tokens=f"answers of {version}"[:64],
    )


_NOTHING_TO_LOAD = frozenset({Stage.PAUSED, Stage.PROVED, Stage.OPEN})
"""Stages in which a worker that has proved the version only has to open its gate."""


def _updated(worker: Worker, action: Update, fates: Mapping[str, Effect]) -> Worker:
    report = worker.report
    if report is None:
        return worker
    if report.proved == action.version and report.stage in _NOTHING_TO_LOAD:
        return _opened(worker, action) if action.through is Verb.RESUME else worker
    if report.prepared != action.version:
        return worker
    if action.through is Verb.PAUSE:
        is_paused = report.stage in {Stage.CLOSED, Stage.OPEN, Stage.PROVED}
        return _reporting(worker, stage=Stage.PAUSED, paused_s=0.0) if is_paused else worker
    fate = fates.get(action.version, Effect.GOOD)
    if fate in {Effect.BREAKS, Effect.EXITS}:
        return _broken(worker, action) if fate is Effect.BREAKS else exited(worker, action)
    worker = _reporting(
        worker,
        stage=Stage.PROVED,
        proved=action.version,
        proof=_proof(worker, action.version),
        installed=action.version,
        failure=None,
        exits=None,
    )
    return _opened(worker, action) if action.through is Verb.RESUME else worker


def _broken(worker: Worker, action: Update) -> Worker:
    failure = Problem.of(
        Code.PROOF_FAILED,
        "the probe differs",
        version=action.version,
        operation=action.operation,
    )
    return _reporting(
        worker,
        stage=Stage.DOUBT,
        proved=None,
        proof=None,
        installed=action.version,
        failure=failure,
        paused_s=None,
    )


def exited(worker: Worker, action: Update) -> Worker:
    """Return a worker whose engine exited while it loaded the version."""
    before = worker.report.exits if worker.report else None
    is_again = before is not None and before.operation == action.operation
    count = before.count + 1 if before is not None and is_again else 1
    exits = Exits(version=action.version, operation=action.operation, count=count)
    failure = Problem.of(
        Code.RELOAD_FAILED,
        f"the engine exited while {action.version} was loading",
        version=action.version,
        operation=action.operation,
    )
    ended = {"stage": Stage.DOWN, "proved": None, "proof": None, "boot": None, "paused_s": None}
    return _reporting(worker, **ended, failure=failure, exits=exits)


def _opened(worker: Worker, action: Update) -> Worker:
    if worker.report is None or worker.report.stage is Stage.OPEN:
        return worker
    change = Change(
        operation=action.operation,
        version=action.version,
        finished_at=0.0,
        timings=Timings(window_s=0.25),
    )
    return _reporting(worker, stage=Stage.OPEN, paused_s=None, last_change=change)


def _paused(worker: Worker) -> Worker:
    is_able = worker.report is not None and worker.report.stage in {Stage.OPEN, Stage.PROVED}
    return _reporting(worker, stage=Stage.PAUSED, paused_s=0.0) if is_able else worker


def _reporting(worker: Worker, **change: object) -> Worker:
    report = worker.report.model_copy(update=change) if worker.report else None
    return replace(worker, report=report)


def _resumed(worker: Worker, action: Resume) -> Worker:
    report = worker.report
    if report is None or report.proved != action.version:
        return worker
    if report.stage not in {Stage.PAUSED, Stage.PROVED}:
        return worker
    return _reporting(worker, stage=Stage.OPEN, paused_s=None)
