"""What a trainer's call means for the worker that it is sent to. Pure.

Trainers name no operation, and no version but by its directory. It must stay true that a
resume which names nothing opens a worker only if the trainer's own last update ended well.
"""

import re

from rlfleet_contract.paths import BASE_VERSION, VERSION_PATTERN
from rlfleet_contract.worker.commands import PauseMode, Verb
from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.state.sent_weights import label_of
from rlfleet_sidecar.state.stage_machine import State

PREFIX = "trainer-"
"""What the operation of a trainer's change begins with."""
_AT_REST = frozenset({Stage.DOWN, Stage.CLOSED, Stage.OPEN})
OTHER_ENGINE = (
    "this is a worker extension of prime-rl's own, which this engine does not run: send weights"
    " by vLLM's /init_weight_transfer_engine, or write them to a directory and send"
    ' {"weight_dir": DIRECTORY}'
)
BROADCASTER = "init_broadcaster"
"""What prime-rl's own engine calls the forming of its group."""
UNNAMED = "unnamed"
"""The version of an adapter whose directory has no name that could be one."""


def adapter_version(directory: str) -> str:
    """Tell what to call an adapter's version: its directory's name."""
    name = directory.rstrip("/").rpartition("/")[2]
    return name if re.fullmatch(VERSION_PATTERN, name) else UNNAMED


def engine_ids(request_id: str) -> list[str]:
    """Tell by which ids an engine may know the request that its client calls so.

    A client knows the ``X-Request-Id`` that it sent, or the id that a reply has told; vLLM
    puts its route's name before the one, and the prompt's number behind that of a completion.
    """
    return [
        request_id,
        f"{request_id}-0",
        f"chatcmpl-{request_id}",
        f"cmpl-{request_id}-0",
        f"generate-tokens-{request_id}",
    ]


def mode_of(word: str | None) -> PauseMode:
    """Tell what becomes of requests in flight; Keep if the caller does not say."""
    if word is None:
        return PauseMode.KEEP
    for mode in PauseMode:
        if word == mode.lower():
            return mode
    known = ", ".join(mode.lower() for mode in PauseMode)
    raise SidecarError(Code.INVALID_REQUEST, f"mode: {word:.40} is none of {known}")


def operation_of(led_by: tuple[str, int | None] | None, fresh: str) -> str:
    """Tell whose operation a trainer's call belongs to: the change that it leads, or a new one."""
    if led_by is None or led_by[1] is not None or not led_by[0].startswith(PREFIX):
        return fresh
    return led_by[0]


def is_paused(state: State) -> bool:
    """Tell whether requests wait."""
    return state.stage is not Stage.OPEN


def through(state: State) -> Verb:
    """Tell how far an update goes: a worker that is paused stays so until it is resumed."""
    return Verb.RESUME if state.stage in _AT_REST else Verb.VERIFY


def loaded(state: State) -> str:
    """Tell the version that a pause or a resume is about: the engine's."""
    return state.proved or state.installed or BASE_VERSION


def demand_up(state: State) -> None:
    """See that there is an engine to speak of."""
    if state.stage is Stage.DOWN:
        raise SidecarError(
            Code.ENGINE_UNREACHABLE, "the engine does not answer; send it again when it does"
        )


def demand_paused(state: State) -> None:
    """See that whoever must pause first has done so."""
    demand_up(state)
    if state.stage in _AT_REST:
        raise SidecarError(
            Code.WRONG_STAGE, f"this worker is {state.stage}: send pause_generation first"
        )


def demand_unopened(state: State) -> None:
    """See that weights are not sent to a worker that serves."""
    if state.stage is Stage.OPEN:
        raise SidecarError(
            Code.WRONG_STAGE, "this worker is Open: send pause and start_weight_update first"
        )


def not_ended(version: str) -> Problem:
    """Tell what stands of an update that has begun, until it has ended."""
    return Problem.of(Code.BUSY, f"the update to {version} was not seen to end", version=version)


def demand_resumable(state: State, failure: Problem | None, updating: str | None) -> None:
    """See that a resume, which names no version, opens what its trainer means to have opened."""
    if updating is not None:
        raise SidecarError(
            Code.BUSY, f"the update to {updating} has not ended; resume when it was answered"
        )
    if failure is not None:
        is_doubt = state.stage is Stage.DOUBT
        raise SidecarError(
            Code.ENGINE_IN_DOUBT if is_doubt else Code.WRONG_STAGE,
            f"the last update failed ({failure.code}: {failure.message}) and this worker holds"
            f" {state.proved or 'nothing that is proved'}: update it to a good version, or pause"
            " anew before resuming",
        )


def demand_proved(state: State, named: str) -> str:
    """See that a version which a caller declares is the one that was proved."""
    if named not in {state.proved, label_of(state.proved)}:
        raise SidecarError(
            Code.WRONG_STAGE,
            f"{named:.128} is not what this worker has proved ({state.proved or 'nothing'}): a"
            " version is the name of the directory that was loaded, and is not declared",
        )
    return named
