"""The sidecar's settings, from its pod."""

import re
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
_URL = (
    r"(s3|gs|https?)://[^/{}?#@\s]+(/[^/{}?#\s]+)*/[^/{}?#\s]*\{version\}[^/{}?#\s]*(/[^/{}?#\s]+)*"
)
_ENCODED = re.compile(r"%(2f|7b|7d|[01][0-9a-f]|7f)|/(\.|%2e){1,2}(?=/|$)", re.IGNORECASE)
"""A slash, a brace, a control character; a part that leads elsewhere. All but a name's own
characters would be decoded into another place of the server."""


def _check_absolute(path: Path) -> Path:
    if not path.is_absolute() or ".." in path.parts:
        raise ValueError("must be an absolute path without '..'")
    return path


def _check_template(template: str) -> str:
    _check_absolute(Path(template))
    if template.count(PLACEHOLDER) != 1 or template.replace(PLACEHOLDER, "").count("{"):
        raise ValueError("must contain {version} exactly once")
    return template


def _check_url(template: str) -> str:
    if re.fullmatch(_URL, template) is None or template.count(PLACEHOLDER) != 1:
        raise ValueError("must be an s3://, gs:// or https:// URL that contains {version} once")
    if template.startswith("http") and (found := _ENCODED.search(template)):
        raise ValueError(f"must not contain {found[0]}, which is no part of a name")
    return template


def _known_test(text: object) -> object:
    """Parse the operator's record; an invalid one counts as none."""
    if not isinstance(text, str):
        return text
    try:
        return SelfTest.model_validate_json(text) if text else None
    except ValidationError:
        return None


AbsoluteFolder = Annotated[Path, AfterValidator(_check_absolute)]

Markers = Annotated[
    tuple[Annotated[str, StringConstraints(pattern=r"^[^/]{1,64}$")], ...], COMMA_SEPARATED
]


class SidecarSettings(WorkerIdentity):
    """The variables of the sidecar's container."""

    IS_EMPTY_UNSET: ClassVar[bool] = False

    model_name: str = Field(min_length=1)
    """The name under which vLLM serves the model (--served-model-name)."""
    model_path: AbsoluteFolder
    """Directory of the base model, which the engine boots with."""
    engine_url: str = f"http://127.0.0.1:{paths.ENGINE_PORT}"
    """vLLM's API server, on loopback."""
    weights_path: Annotated[str, AfterValidator(_check_template)] = "/weights/{version}"
    """Directory of a version; the part before {version} is the root for all weights."""
    weights_source: Annotated[str, AfterValidator(_check_url)] | None = None
    """URL of a version in an object store: s3://, gs://, https:// or http://, with {version}; takes
    the place of RLFLEET_WEIGHTS_PATH, and needs a cache."""
    store_endpoint: str = ""
    """Address of a server that is compatible with S3 or Google Cloud Storage; empty: the own one of
    the URL's kind."""
    store_region: str = ""
    """Region of the bucket; empty: AWS_REGION, or us-east-1."""
    store_credentials: AbsoluteFolder | None = None
    """Directory of the store's credentials, one file per key, read again for each version. None:
    the pod's identity."""
    store_retry_s: float = Field(default=60.0, ge=0)
    """Seconds for which a request that the store fails is repeated, with growing pauses."""
    store_anonymous: bool = False
    """Whether requests to the store are not signed."""
    token_file: AbsoluteFolder = Path("/var/run/rlfleet/token/token")
    """File with the fleet's token, read again when it changes; if missing or empty, every command
    is rejected."""
    tls_dir: AbsoluteFolder | None = None
    """Directory with tls.crt, tls.key and ca.crt: the sidecar speaks HTTPS, and other sidecars must
    too. A replaced file is used from then on. None: plain HTTP."""
    tls_name: str = ""
    """The name in the certificates of the fleet's sidecars."""
    fleet_uid: str = ""
    """The fleet's metadata.uid; if empty, commands for any fleet are accepted."""
    pod_uid: str = ""
    """This pod's metadata.uid; if empty, commands for any pod are accepted."""
    state_dir: AbsoluteFolder = Path("/var/lib/rlfleet")
    """Directory of the journal; must survive the container, but not the pod."""
    host: str = "0.0.0.0"
    """Address that the sidecar listens on."""
    port: int = Field(default=paths.ADMIN_PORT, ge=0, le=65535)
    """Port that it listens on."""
    markers: Markers = ("STABLE", ".finished")
    """Names of files that mark a version as complete, separated by commas; any one is enough.
    Empty: no marker is required."""
    cache_dir: AbsoluteFolder | None = Field(default=None, validate_default=True)
    """Directory for copies of versions, with the same path in the engine. None: no cache."""
    cache_bytes: int = Field(default=1 << 40, gt=0)
    """Largest size of all copies together, in bytes."""
    cache_spare: float = Field(default=0.1, ge=0, lt=1)
    """Share of the cache's file system that stays free: below a tenth the kubelet evicts pods."""
    engine_uid: int | None = None
    """User of the engine, if it is not the sidecar's."""
    probe_tokens: int = Field(default=2, ge=1, le=64)
    """Length of the probe's greedy completion, in tokens."""
    probe_s: float = Field(default=0.25, gt=0)
    """Seconds for one answer to the probe. The prompt's length is chosen at the engine's start to
    fit; clients wait for two answers in a change."""
    gauge_s: float = Field(default=10.0, ge=0)
    """Seconds for measuring a started engine in large batches, which gives the tolerance of proofs
    with frozen requests."""
    preload_s: float = Field(default=5.0, ge=0)
    """Seconds, and 4 per GiB, that a prepare waits while the engine reads the version into its
    memory, so that the change need not. 0: the engine does not."""
    poll_s: float = Field(default=1.0, gt=0)
    """Seconds between two polls of the engine."""
    warm_s: float = Field(default=900.0, gt=0)
    """Seconds for the first answer of a started engine."""
    self_test_s: float = Field(default=300.0, ge=0)
    """Seconds for the self-test of the engine's reload, which changes each kind of tensors before
    the engine serves. 0: no test, and no proof has Faithful or Sensitive."""
    self_test_again_s: float = Field(default=60.0, gt=0)
    """Seconds until the self-test is repeated after three exits of the engine during it; doubles
    with each further exit, up to half an hour."""
    self_test: Annotated[SelfTest | None, BeforeValidator(_known_test)] = None
    """Result of an equal engine's self-test, as JSON from the operator; empty: none."""
    experimental_transfer: bool = False
    """Whether trainers may send weights into vLLM's transfer engine. Experimental: there is no
    checkpoint to check or to compare with."""
    require_tested: bool = False
    """Whether releases of vLLM that rlfleet was not tested with are rejected."""
    doubt_wait_s: float = Field(default=60.0, ge=0)
    """Seconds that requests wait for an engine in doubt; a rollback takes less. Then they are
    rejected, so that clients try another worker."""
    trainer_saved_path: Annotated[str, AfterValidator(_check_template)] | None = None
    """Directory of a trainer's own checkpoints, for trainers that load one after a restart, such
    as prime-rl. None: not supported."""
    trainer_prepare_s: float = Field(default=600.0, gt=0)
    """Seconds for check and copy of a version in a trainer's update."""
    trainer_wait_s: float = Field(default=120.0, ge=0)
    """Seconds of RLFLEET_TRAINER_PREPARE_S that a trainer's update waits until the version is
    complete, with a paused engine."""
    trainer_busy_s: float = Field(default=240.0, ge=0)
    """Seconds that a trainer's call waits for a change of the operator, such as a late joiner's.
    prime-rl exits after ten quick answers of 503, in 65 s, but waits 300 s for one answer."""
    trainer_drain_s: float = Field(default=1200.0, gt=0)
    """Seconds for all generations to end in a trainer's pause in mode wait; at most the TTL."""
    trainer_up_s: float = Field(default=240.0, ge=0)
    """Seconds that a trainer's call waits for an engine that is down or boots. prime-rl exits
    after ten quick answers of 503, in 65 s, but waits 300 s for one answer."""
    trainer_adapter_wait_s: float = Field(default=20.0, ge=0, le=600)
    """Seconds that a trainer's call waits until an adapter is complete. prime-rl waits 30 s for an
    answer, and retries."""
    trainer_transfer_s: float = Field(default=600.0, gt=0)
    """Seconds for one call of a transfer. vLLM's own timeout for forming a group is 300 s."""
    trainer_ttl_s: float = Field(
        default=paths.TRAINER_TTL_S, gt=0, le=paths.MAX_TTL_S, validate_default=True
    )
    """TTL in seconds of a trainer's change: longer than prime-rl retries one slow engine while the
    others wait, 1440 s."""
    follow_s: float = Field(default=3.0, gt=0)
    """Seconds between two looks for the newest version, while the fleet follows its trainer."""
    retain_s: float = Field(default=60.0, gt=0)
    """Seconds between two looks for versions that are not needed, with weights.retention."""
    check_s: float = Field(default=120.0, gt=0)
    """Seconds for the check of one version's headers."""

    @field_validator("cache_dir")
    @classmethod
    def _check_cache(cls, cache: Path | None, others: ValidationInfo) -> Path | None:
        if cache is None and others.data.get("weights_source") is not None:
            raise ValueError("must be set with RLFLEET_WEIGHTS_SOURCE: engines read no store")
        return cache

    @field_validator("trainer_ttl_s")
    @classmethod
    def _check_trainer(cls, ttl_s: float, others: ValidationInfo) -> float:
        if ttl_s <= others.data.get("trainer_prepare_s", 0):
            raise ValueError("must be more than RLFLEET_TRAINER_PREPARE_S")
        return ttl_s
