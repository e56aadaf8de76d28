"""The actions of a plan, as data: kube/apply.py and workers/pool.py execute them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rlfleet_contract.worker.commands import (
    Command,
    FlushRequest,
    KVCache,
    PauseMode,
    PauseRequest,
    PrepareRequest,
    ResumeRequest,
    Timeouts,
    UpdateRequest,
    Verb,
)
from rlfleet_contract.worker.lora import LoadAdapterRequest, UnloadAdapterRequest
from rlfleet_contract.worker.proof import Proof
from rlfleet_contract.worker.supply import Supply
from rlfleet_operator.crd.rollout_spec import RolloutSpec


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
    successor: int | None = None
    """The ordinal whose new pod the API server must accept first; None if none must."""


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
class _VersionCommand:
    """A command to a worker about one version, in the operation of its rollout or pause."""

    worker: str
    version: str
    operation: str


@dataclass(frozen=True, slots=True)
class Prepare(_VersionCommand):
    """Let a worker wait for a version, check it and copy it into its cache while it serves."""

    digest: str | None = None
    """The expected digest of the version's manifest."""
    waits: bool = True
    """Whether the worker waits for a version that is not complete."""
    supply: Supply | None = None
    """From which workers it receives pieces; None unless the fleet shares versions."""

    def request(self, rollout: RolloutSpec) -> Command:
        """Return the request body for the sidecar."""
        return PrepareRequest(
            operation=self.operation,
            version=self.version,
            timeout_s=float(rollout.timeouts.prepare_seconds),
            wait_s=None if self.waits else 0,
            digest=self.digest,
            supply=self.supply,
        )


@dataclass(frozen=True, slots=True)
class Update(_VersionCommand):
    """Let a worker change to a prepared version: pause, flush, reload, verify, resume.

    ``through`` is the last step to take; completed steps are not repeated.
    """

    expected: Proof | None
    """The proof of a peer that serves the version; None for the first worker."""
    through: Verb = Verb.RESUME

    def request(self, rollout: RolloutSpec) -> Command:
        """Return the request body for the sidecar."""
        limits = rollout.timeouts
        return UpdateRequest(
            operation=self.operation,
            version=self.version,
            mode=rollout.pause_mode,
            kv_cache=rollout.kv_cache,
            through=self.through,
            expected=self.expected,
            timeouts=Timeouts(
                pause_s=limits.pause_seconds,
                flush_s=limits.flush_seconds,
                reload_s=limits.reload_seconds,
                verify_s=limits.verify_seconds,
                resume_s=limits.resume_seconds,
            ),
        )


@dataclass(frozen=True, slots=True)
class Resume(_VersionCommand):
    """Let a paused worker serve the version that it has proved."""

    def request(self, rollout: RolloutSpec) -> Command:
        """Return the request body for the sidecar."""
        return ResumeRequest(
            operation=self.operation,
            version=self.version,
            timeout_s=float(rollout.timeouts.resume_seconds),
        )


@dataclass(frozen=True, slots=True)
class Pause(_VersionCommand):
    """Let a worker stop serving because a trainer has paused the fleet."""

    mode: PauseMode
    kv_cache: KVCache

    def request(self, rollout: RolloutSpec) -> Command:
        """Return the request body for the sidecar."""
        return PauseRequest(
            operation=self.operation,
            version=self.version,
            mode=self.mode,
            kv_cache=self.kv_cache,
            timeout_s=float(rollout.timeouts.pause_seconds),
        )


@dataclass(frozen=True, slots=True)
class Flush(_VersionCommand):
    """Let a paused worker empty its KV and prefix caches."""

    def request(self, rollout: RolloutSpec) -> Command:
        """Return the request body for the sidecar."""
        return FlushRequest(
            operation=self.operation,
            version=self.version,
            timeout_s=float(rollout.timeouts.flush_seconds),
        )


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

    def request(self, rollout: RolloutSpec) -> Command:
        """Return the request body for the sidecar."""
        return LoadAdapterRequest(
            operation=self.operation,
            version=self.version,
            name=self.name,
            path=self.path,
            inherited=self.inherited,
            timeout_s=float(rollout.timeouts.prepare_seconds),
        )


@dataclass(frozen=True, slots=True)
class UnloadAdapter:
    """Let a worker unload the adapter of this name."""

    worker: str
    name: str
    version: str
    operation: str

    def request(self, _rollout: RolloutSpec) -> Command:
        """Return the request body for the sidecar."""
        return UnloadAdapterRequest(operation=self.operation, version=self.version, name=self.name)


WeightsCommand = Prepare | Update | Resume | Pause | Flush
"""Commands to a worker's sidecar about its weights."""
LoRACommand = LoadAdapter | UnloadAdapter
WorkerCommand = WeightsCommand | LoRACommand
PodAction = CreatePod | DeletePod | MarkPod
Action = PodAction | WorkerCommand


_LABELS, _LABELS_PER_S = 50, 100.0
"""How many labels are written at once, and the rate. Traffic waits for a gate and for no label, and
a rollout of a large fleet changes a label of every pod."""


def first_of_each(actions: Sequence[PodAction], count: int) -> list[PodAction]:
    """Return the first ``count`` of each kind, so that a rejected kind delays no other.

    Marks that only write a label come last, and fewer at once.
    """
    kinds: defaultdict[type[PodAction], list[PodAction]] = defaultdict(list)
    labels: list[PodAction] = []
    for action in actions:
        (labels if _is_label(action) else kinds[type(action)]).append(action)
    first = [action for kind in kinds.values() for action in kind[:count]]
    return first + labels[:_LABELS]


def rest_s(batch: Sequence[PodAction], spent_s: float) -> float:
    """Return how long to rest after a batch that took ``spent_s``, for the rate of its labels."""
    return max(0.0, sum(map(_is_label, batch)) / _LABELS_PER_S - spent_s)


def _is_label(action: PodAction) -> bool:
    return isinstance(action, MarkPod) and not action.regates
