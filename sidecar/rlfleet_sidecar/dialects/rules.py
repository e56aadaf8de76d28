"""What a trainer's call means for its worker. Pure.

Trainers send no operation, and a version only as a directory. It must stay true that a resume
opens a worker only if the trainer's last update succeeded.
"""

import re

from rlfleet_contract.paths import BASE_VERSION, VERSION_PATTERN
from rlfleet_contract.worker.commands import PauseMode, Verb
from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.state.preconditions import demand_up
from rlfleet_sidecar.state.sent_weights import label_of
from rlfleet_sidecar.state.stage_machine import State

PREFIX = "trainer-"
"""Prefix of the operation of a trainer's change."""
_AT_REST = frozenset({Stage.DOWN, Stage.CLOSED, Stage.OPEN})
OTHER_ENGINE = (
    "not supported: this call needs prime-rl's worker extension; use vLLM's"
    " /init_weight_transfer_engine, or write a checkpoint and send"
    ' {"weight_dir": DIRECTORY}'
)
BROADCASTER = "init_broadcaster"
"""The call with which prime-rl's transfer engine forms its group."""
UNNAMED = "unnamed"
"""The version of an adapter whose directory's name is not a valid version."""


def adapter_version(directory: str) -> str:
    """Return an adapter's version, which is its directory's name."""
    name = directory.rstrip("/").rpartition("/")[2]
    return name if re.fullmatch(VERSION_PATTERN, name) else UNNAMED


def engine_ids(request_id: str) -> list[str]:
    """Return the ids that vLLM may have for a client's request id.

    A client knows the ``X-Request-Id`` that it sent, or the id in a reply. vLLM prepends its
    route's name to the former, and appends the prompt's number to a completion's.
    """
    return [
        request_id,
        f"{request_id}-0",
        f"chatcmpl-{request_id}",
        f"cmpl-{request_id}-0",
        f"generate-tokens-{request_id}",
    ]


def mode_of(word: str | None) -> PauseMode:
    """Return the mode of a pause; Keep without a word."""
    if word is None:
        return PauseMode.KEEP
    for mode in PauseMode:
        if word == mode.lower():
            return mode
    known = ", ".join(mode.lower() for mode in PauseMode)
    raise SidecarError(Code.INVALID_REQUEST, f"mode: got {word:.40}, expected one of {known}")


def operation_of(led_by: tuple[str, int | None] | None, fresh: str) -> str:
    """Return the operation of the trainer's change under way, or ``fresh``."""
    if led_by is None or led_by[1] is not None or not led_by[0].startswith(PREFIX):
        return fresh
    return led_by[0]


def is_paused(state: State) -> bool:
    """Return whether requests wait."""
    return state.stage is not Stage.OPEN


def through(state: State) -> Verb:
    """Return the last step of an update: a paused worker stays so until its trainer resumes it."""
    return Verb.RESUME if state.stage in _AT_REST else Verb.VERIFY


def loaded(state: State) -> str:
    """Return the engine's version, for a pause or a resume."""
    return state.proved or state.installed or BASE_VERSION


def demand_paused(state: State) -> None:
    """Raise unless the worker is paused."""
    demand_up(state.stage)
    if state.stage in _AT_REST:
        raise SidecarError(
            Code.WRONG_STAGE,
            f"cannot update in stage {state.stage} (expected Paused); send pause_generation first",
        )


def demand_unopened(state: State) -> None:
    """Raise for a transfer to a worker that serves."""
    if state.stage is Stage.OPEN:
        raise SidecarError(
            Code.WRONG_STAGE,
            "cannot receive weights in stage Open; send pause and start_weight_update first",
        )


def not_ended(version: str) -> Problem:
    """Return the failure of an update that has begun, which holds until its end."""
    return Problem.of(Code.BUSY, f"the update to {version} has not ended", version=version)


def demand_resumable(state: State, failure: Problem | None, updating: str | None) -> None:
    """Raise unless the trainer's last update has succeeded, because a resume names no version."""
    if updating is not None:
        raise SidecarError(
            Code.BUSY, f"the update to {updating} has not ended; resume after its reply"
        )
    if failure is not None:
        is_doubt = state.stage is Stage.DOUBT
        raise SidecarError(
            Code.ENGINE_IN_DOUBT if is_doubt else Code.WRONG_STAGE,
            f"the last update failed ({failure.code}: {failure.message}; this worker has"
            f" {state.proved or 'no proved version'}); load a good version, or pause again, then"
            " resume",
        )


def demand_proved(state: State, named: str) -> str:
    """Raise unless a declared version is the proved one."""
    if named not in {state.proved, label_of(state.proved)}:
        raise SidecarError(
            Code.WRONG_STAGE,
            f"got version {named:.128}, expected the proved {state.proved or 'none'}, which is"
            " the name of the loaded directory; load it first",
        )
    return named
