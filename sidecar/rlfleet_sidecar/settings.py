"""What the sidecar is told by its pod."""

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from rlfleet_contract import paths
from rlfleet_contract.settings import COMMA_SEPARATED, WorkerIdentity
from rlfleet_contract.worker.selftest import SelfTest

PLACEHOLDER = "{version}"


def _check_absolute(path: Path) -> Path:
    if not path.is_absolute() or ".." in path.parts:
        raise ValueError("must be an absolute path without '..'")
    return path


def _check_template(template: str) -> str:
    _check_absolute(Path(template))
    if template.count(PLACEHOLDER) != 1 or template.replace(PLACEHOLDER, "").count("{"):
        raise ValueError("must hold {version} exactly once")
    return template


def _known_test(told: object) -> object:
    """Parse what the operator remembers; what is not understood counts as nothing."""
    if not isinstance(told, str):
        return told
    try:
        return SelfTest.model_validate_json(told) if told else None
    except ValidationError:
        return None


AbsoluteFolder = Annotated[Path, AfterValidator(_check_absolute)]

Markers = Annotated[
    tuple[Annotated[str, StringConstraints(pattern=r"^[^/]{1,64}$")], ...], COMMA_SEPARATED
]


class SidecarSettings(WorkerIdentity):
    """Everything that a pod can set."""

    IS_EMPTY_UNSET: ClassVar[bool] = False

    model_name: str = Field(min_length=1)
    """The name under which vLLM serves the model (--served-model-name)."""
    model_path: AbsoluteFolder
    """What the engine boots with; the version named base."""
    engine_url: str = f"http://127.0.0.1:{paths.ENGINE_PORT}"
    """vLLM's API server, on loopback."""
    weights_path: Annotated[str, AfterValidator(_check_template)] = "/weights/{version}"
    """Where a version lies; what stands before the part with {version} is the allowed root."""
    token_file: AbsoluteFolder = Path("/var/run/rlfleet/token/token")
    """Read again when it changes; missing or empty, every command is refused."""
    fleet_uid: str = ""
    """The fleet's metadata.uid; empty, commands for any fleet are taken."""
    pod_uid: str = ""
    """This pod's metadata.uid; empty, commands for any pod are taken."""
    state_dir: AbsoluteFolder = Path("/var/lib/rlfleet")
    """The worker's own memory; must outlive the container, not the pod."""
    host: str = "0.0.0.0"
    """Address that the sidecar listens on."""
    port: int = Field(default=paths.ADMIN_PORT, ge=0, le=65535)
    """Port that it listens on."""
    markers: Markers = ("STABLE", ".finished")
    """Files by which a writer says that a version is complete, separated by commas: any one
    is enough; none named, none is demanded."""
    cache_dir: AbsoluteFolder | None = None
    """Where versions are staged; the engine sees it under the same path. None: nowhere."""
    cache_bytes: int = Field(default=1 << 40, gt=0)
    """What the staged versions may take together."""
    cache_spare: float = Field(default=0.1, ge=0, lt=1)
    """Share of the cache's file system that is left to others: below a tenth a kubelet
    evicts pods."""
    engine_uid: int | None = None
    """The user that the engine runs as, when it is not the sidecar's own."""
    probe_tokens: int = Field(default=2, ge=1, le=64)
    """How many tokens the engine goes on with after the probe's prompt."""
    probe_s: float = Field(default=0.25, gt=0)
    """What one answer to the probe may take, as measured when the engine starts: the prompt
    is as long as that allows. Clients wait for two."""
    gauge_s: float = Field(default=10.0, ge=0)
    """How long a started engine may be measured in large batches: how far its answers lie apart
    there is what a proof beside frozen requests puts up with."""
    poll_s: float = Field(default=1.0, gt=0)
    """How often the engine is looked at."""
    warm_s: float = Field(default=900.0, gt=0)
    """How long the first answer of a started engine may take."""
    self_test_s: float = Field(default=300.0, ge=0)
    """How long the test of an engine's own reload may change one kind of tensors after the
    other, before it serves; 0: no test, and no proof claims Faithful or Sensitive."""
    self_test_again_s: float = Field(default=60.0, gt=0)
    """How long after the third start that ended in its test an engine is tested again; the
    time doubles with each further one, up to half an hour."""
    self_test: Annotated[SelfTest | None, BeforeValidator(_known_test)] = None
    """What an equal engine showed before, as the operator remembers it; empty: nothing."""
    experimental_transfer: bool = False
    """Whether a trainer may send weights into vLLM's transfer engine. Experimental: no checkpoint
    is checked, and only the self-test's layers are left to prove what arrived."""
    require_tested: bool = False
    """Whether a release of vLLM that rlfleet's suites never ran against is refused."""
    doubt_wait_s: float = Field(default=60.0, ge=0)
    """How long requests wait for an engine in doubt: a rollback is done by then, and whoever
    waits for a person's next word is better told to go elsewhere."""
    trainer_saved_path: Annotated[str, AfterValidator(_check_template)] | None = None
    """Where the checkpoints lie that a trainer saves for itself and goes on from, if it has
    them loaded from there: prime-rl's first update after a restart. None: nowhere."""
    trainer_prepare_s: float = Field(default=600.0, gt=0)
    """How long the check and the copy of a version may take within a trainer's update."""
    trainer_wait_s: float = Field(default=120.0, ge=0)
    """How long of that a trainer's update waits for a version that is not complete: its
    engine is paused meanwhile."""
    trainer_busy_s: float = Field(default=240.0, ge=0)
    """How long a trainer's pause waits for a change that somebody else leads, such as a late
    joiner's: prime-rl takes ten quick answers of 503 for the end, after 65 s, and waits 300 s
    for one."""
    trainer_drain_s: float = Field(default=1200.0, gt=0)
    """How long a trainer's pause in mode wait may take until every generation has ended; the
    time to live at most."""
    trainer_up_s: float = Field(default=240.0, ge=0)
    """How long a trainer's call waits for an engine that is down or boots: prime-rl takes ten
    quick answers of 503 for the end, after 65 s, and waits 300 s and more for one."""
    trainer_adapter_wait_s: float = Field(default=20.0, ge=0, le=600)
    """How long a trainer's request waits for an adapter that is not complete: prime-rl waits
    30 s for an answer, and asks again."""
    trainer_transfer_s: float = Field(default=600.0, gt=0)
    """How long one call of a transfer of weights may take. vLLM's own patience with a group
    that does not form is 300 s."""
    trainer_ttl_s: float = Field(
        default=paths.TRAINER_TTL_S, gt=0, le=paths.MAX_TTL_S, validate_default=True
    )
    """How long a change that a trainer leads by its own routes may stand still: longer than
    prime-rl goes on asking one slow engine while the others wait, 1440 s."""
    check_s: float = Field(default=120.0, gt=0)
    """How long the check of one version may take."""

    @field_validator("trainer_ttl_s")
    @classmethod
    def _check_trainer(cls, ttl_s: float, others: ValidationInfo) -> float:
        if ttl_s <= others.data.get("trainer_prepare_s", 0):
            raise ValueError("must be more than RLFLEET_TRAINER_PREPARE_S")
        return ttl_s
