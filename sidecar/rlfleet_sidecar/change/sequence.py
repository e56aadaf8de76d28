"""The single commands of which an update consists."""

from collections.abc import Sequence

from rlfleet_contract.worker.commands import (
    FlushRequest,
    KVCache,
    PauseRequest,
    ReloadRequest,
    ResumeRequest,
    UpdateRequest,
    Verb,
    VerifyRequest,
)

ChangeCommand = PauseRequest | FlushRequest | ReloadRequest | VerifyRequest | ResumeRequest


def steps_of(request: UpdateRequest, verbs: Sequence[Verb]) -> tuple[ChangeCommand, ...]:
    """Make the single commands that the sequence consists of."""
    operation, version, limits = request.operation, request.version, request.timeouts
    steps: dict[Verb, ChangeCommand] = {
        Verb.PAUSE: PauseRequest(
            operation=operation,
            version=version,
            mode=request.mode,
            kv_cache=request.kv_cache,
            timeout_s=limits.pause_s,
            ttl_s=request.ttl_s,
        ),
        Verb.FLUSH: FlushRequest(operation=operation, version=version, timeout_s=limits.flush_s),
        Verb.RELOAD: ReloadRequest(operation=operation, version=version, timeout_s=limits.reload_s),
        Verb.VERIFY: VerifyRequest(
            operation=operation,
            version=version,
            expected=request.expected,
            timeout_s=limits.verify_s,
        ),
        Verb.RESUME: ResumeRequest(operation=operation, version=version, timeout_s=limits.resume_s),
    }
    skipped = {Verb.FLUSH} if request.kv_cache is KVCache.PRESERVE else set()
    return tuple(steps[verb] for verb in verbs if verb not in skipped)
