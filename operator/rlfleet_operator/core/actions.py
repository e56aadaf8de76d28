"""What a plan may ask for, as data; execute.py carries it out."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Make the pod of a missing worker."""

    ordinal: int


@dataclass(frozen=True, slots=True)
class DeletePod:
    """End exactly this pod: a namesake that came after it is left alone."""

    name: str
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class MarkPod:
    """Write the readiness gate and the version label of a pod."""

    name: str
    uid: str
    ready: bool
    version: str | None
    message: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """Have a worker find and check a version while it serves."""

    worker: str
    version: str
    operation: str


@dataclass(frozen=True, slots=True)
class Update:
    """Have a worker change to a prepared version: pause, flush, reload, verify, resume."""

    worker: str
    version: str
    operation: str
    expected_fingerprint: str | None


Action = CreatePod | DeletePod | MarkPod | Prepare | Update
