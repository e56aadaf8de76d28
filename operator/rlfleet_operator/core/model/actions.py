"""What a plan may ask for, as data; kube/apply.py carries it out."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rlfleet_contract.worker.commands import KVCache, PauseMode, Verb
from rlfleet_contract.worker.proof import Proof


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
    """Write the readiness gate and the version label of a pod, what is not so already."""

    name: str
    uid: str
    ready: bool
    version: str | None
    message: str
    relabels: bool = True
    """Whether the label is another."""
    regates: bool = True
    """Whether the gate is another: from one version to the next it stays."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Have a worker wait for a version, check it and stage it while it serves."""

    worker: str
    version: str
    operation: str
    digest: str | None = None
    """What the version's manifest must hash to."""
    waits: bool = True
    """Whether it waits for a version that is not complete."""


@dataclass(frozen=True, slots=True)
class Update:
    """Have a worker change to a prepared version: pause, flush, reload, verify, resume.

    ``through`` is the last of these steps; what is done already is not done again.
    """

    worker: str
    version: str
    operation: str
    expected: Proof | None
    """What a peer showed of the version; None for the first worker."""
    through: Verb = Verb.RESUME


@dataclass(frozen=True, slots=True)
class Resume:
    """Have a worker serve the version that it has proved: the way back out of a pause."""

    worker: str
    version: str
    operation: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Have a worker stop serving because its trainer has paused the fleet."""

    worker: str
    version: str
    operation: str
    mode: PauseMode
    kv_cache: KVCache


@dataclass(frozen=True, slots=True)
class Flush:
    """Have a paused worker empty its caches."""

    worker: str
    version: str
    operation: str


@dataclass(frozen=True, slots=True)
class LoadAdapter:
    """Have a worker serve an adapter under a name, whatever had the name before."""

    worker: str
    name: str
    version: str
    path: str
    operation: str
    inherited: str | None = None
    """The digest of what others serve under a name that must be free here; None: the spec's."""


@dataclass(frozen=True, slots=True)
class UnloadAdapter:
    """Have a worker serve a name no more."""

    worker: str
    name: str
    version: str
    operation: str


WeightsCommand = Prepare | Update | Resume | Pause | Flush
"""What is asked of a worker's sidecar about weights."""
LoRACommand = LoadAdapter | UnloadAdapter
WorkerCommand = WeightsCommand | LoRACommand
PodAction = CreatePod | DeletePod | MarkPod
Action = PodAction | WorkerCommand


def first_of_each(actions: Sequence[PodAction], count: int) -> list[PodAction]:
    """Return so many of each kind: none waits behind what is refused of another."""
    kinds: defaultdict[type[PodAction], list[PodAction]] = defaultdict(list)
    for action in actions:
        kinds[type(action)].append(action)
    return [action for kind in kinds.values() for action in kind[:count]]
