"""A worker's pod as observed, parsed (pod.py) to the fields that decisions need."""

from dataclasses import dataclass

from rlfleet_contract.paths import ADMIN_PORT

_NOTICED_S = 5.0
"""How long after a container's restart its pod may turn not ready: by then it has not answered."""


@dataclass(frozen=True, slots=True)
class Pod:
    """The fields of a worker's pod that decisions need."""

    name: str
    uid: str
    ordinal: int
    owner_uid: str
    template_hash: str
    address: str | None
    """The pod's IP once it has one."""
    phase: str
    ready: bool
    """Kubernetes' condition Ready: containers ready and every readiness gate true."""
    weights_ready: bool | None
    """The readiness gate WeightsReady; None until the operator has written it."""
    version_label: str | None
    """The value of the label for the version (version_label.py)."""
    terminating: bool
    ends_by: float | None
    """The end of the grace period of a terminating pod; None for any other."""
    engine_restarts: int
    trouble: str | None
    """Why a container or the scheduler is stuck, in Kubernetes' words."""
    crash: str | None = None
    """How a restarted container that is not ready ended last, the engine left out. While it runs,
    there is no trouble."""
    created_at: float | None = None
    """When the API server created it; None if unknown."""
    engine_exit: str | None = None
    """The last exit code of the engine's container, with its reason if that adds something, and
    what it wrote last."""
    engine_since: float | None = None
    """When the engine's container was started; None while it does not run."""
    topology: tuple[str, str] = ("", "")
    """Zone and node that it runs on; empty if unknown."""
    ready_changed_at: float | None = None
    """When Ready changed last; None if unknown."""
    weights_ready_at: float | None = None
    """When the readiness gate changed last, by the operator's clock; None if unknown."""
    admin_port: int = ADMIN_PORT
    """The port "admin" of its sidecar."""
    tls_secret: str | None = None
    """The Secret with its sidecar's certificate; None for one that speaks plain HTTP."""
    finalizers: tuple[str, ...] = ()
    """Other tools' finalizers, which keep it after its containers have ended."""
    awaited_init: str | None = None
    """Another tool's init container that runs: the engine starts after it."""
    unready: str | None = None
    """Which container or other tool's readiness gate keeps it from Ready; None if none does."""

    @property
    def has_ended(self) -> bool:
        """Whether its phase is Failed or Succeeded, so that no container starts again."""
        return self.phase in {"Failed", "Succeeded"}

    @property
    def was_ready(self) -> bool:
        """Whether it was ready since its engine was started; a restart takes that from it first."""
        return was_ready(self.engine_since, self.ready_changed_at)

    @property
    def is_active(self) -> bool:
        """Whether it has neither ended nor is terminating, as in Kubernetes' controllers."""
        return not self.has_ended and not self.terminating

    @property
    def is_plain(self) -> bool:
        """Whether it takes traffic, and never had trouble."""
        is_up = self.is_active and self.ready and bool(self.weights_ready)
        return is_up and self.trouble is None and self.ends_by is None and not self.engine_restarts

    @property
    def answers_at(self) -> str | None:
        """The address of its sidecar; None after its end, because another pod may get its IP."""
        return None if self.has_ended else self.address


def was_ready(since: float | None, changed_at: float | None) -> bool:
    """Return whether a pod that is not ready was ready since a container of it was started."""
    return since is not None and changed_at is not None and changed_at > since + _NOTICED_S


def log_of(pod: str, container: str) -> str:
    """Return how to read the log of a container that has ended."""
    return f"log: kubectl logs {pod} -c {container} --previous"
