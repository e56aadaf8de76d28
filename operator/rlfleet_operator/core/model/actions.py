"""The actions of a plan, as data: kube/apply.py and workers/pool.py execute them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rlfleet_contract.worker.commands import KVCache, PauseMode, Verb
from rlfleet_contract.worker.proof import Proof


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create the pod of a worker that has none."""

    ordinal: int


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete the pod with this UID; a newer pod of the same name stays."""

    name: str
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class MarkPod:
    """Write the readiness gate and the version label of a pod, each only if it differs."""

    name: str
    uid: str
    ready: bool
    version: str | None
    message: str
    relabels: bool = True
    """Whether the label must be written."""
    regates: bool = True
    """Whether the gate must be written; it often stays true across versions."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Let a worker wait for a version, check it and copy it into its cache while it serves."""

    worker: str
    version: str
    operation: str
    digest: str | None = None
    """The expected digest of the version's manifest."""
    waits: bool = True
    """Whether the worker waits for a version that is not complete."""


@dataclass(frozen=True, slots=True)
class Update:
    """Let a worker change to a prepared version: pause, flush, reload, verify, resume.

    ``through`` is the last step to take; completed steps are not repeated.
    """

    worker: str
    version: str
    operation: str
    expected: Proof | None
    """The proof of a peer that serves the version; None for the first worker."""
    through: Verb = Verb.RESUME


@dataclass(frozen=True, slots=True)
class Resume:
    """Let a paused worker serve the version that it has proved."""

    worker: str
    version: str
    operation: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Let a worker stop serving because a trainer has paused the fleet."""

    worker: str
    version: str
    operation: str
    mode: PauseMode
    kv_cache: KVCache


@dataclass(frozen=True, slots=True)
class Flush:
    """Let a paused worker empty its KV and prefix caches."""

    worker: str
    version: str
    operation: str


@dataclass(frozen=True, slots=True)
class LoadAdapter:
    """Let a worker serve a LoRA adapter under a name; it replaces an earlier one of that name."""

    worker: str
    name: str
    version: str
    path: str
    operation: str
    inherited: str | None = None
    """The digest of the peers' adapter, if the name must be free; None for the spec's adapters."""


@dataclass(frozen=True, slots=True)
class UnloadAdapter:
    """Let a worker unload the adapter of this name."""

    worker: str
    name: str
    version: str
    operation: str


WeightsCommand = Prepare | Update | Resume | Pause | Flush
"""Commands to a worker's sidecar about its weights."""
LoRACommand = LoadAdapter | UnloadAdapter
WorkerCommand = WeightsCommand | LoRACommand
PodAction = CreatePod | DeletePod | MarkPod
Action = PodAction | WorkerCommand


def first_of_each(actions: Sequence[PodAction], count: int) -> list[PodAction]:
    """Return the first ``count`` of each kind, so that a rejected kind delays no other."""
    kinds: defaultdict[type[PodAction], list[PodAction]] = defaultdict(list)
    for action in actions:
        kinds[type(action)].append(action)
    return [action for kind in kinds.values() for action in kind[:count]]
