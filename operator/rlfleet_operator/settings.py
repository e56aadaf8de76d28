"""The operator's settings, as its Deployment has them."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StringConstraints, ValidationInfo, field_validator

from rlfleet_contract import paths
from rlfleet_contract.settings import COMMA_SEPARATED, Settings

OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""The file with its namespace in every pod with a ServiceAccount."""
_Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
_Level = Literal["DEBUG", "INFO", "WARNING", "ERROR"]


class OperatorSettings(Settings):
    """The environment variables of the operator's Deployment."""

    worker_image: str
    """Image of workers whose fleet names none, made from Dockerfile.worker; the chart sets it
    from worker.image."""
    namespaces: Annotated[tuple[_Name, ...], COMMA_SEPARATED] = ()
    """Namespaces to watch, comma-separated; none: all."""
    admin_port: int = Field(default=paths.ADMIN_PORT, ge=1)
    """Port of the sidecars."""
    metrics_port: int = Field(default=8081, ge=0)
    """Port of /metrics, /healthz and /readyz; 0: not served."""
    fleets_port: int = Field(default=0, ge=0)
    """Port of the fleet API for trainers; 0: not served."""
    fleets_tls_dir: Path | None = None
    """Directory with tls.crt and tls.key: the fleet API speaks HTTPS. A replaced file is used from
    then on. None: plain HTTP."""
    poll_seconds: float = Field(default=10.0, ge=0.1)
    """Interval of state requests to an idle worker that sends no news (an earlier release)."""
    sidecar_concurrency: int = Field(default=128, ge=1)
    """Requests to the sidecars of all fleets that start at once."""
    watch_silence_seconds: float = Field(default=150.0, ge=1)
    """Seconds without an event after which a watch restarts; the API server sends a bookmark
    about once a minute."""
    log_level: Annotated[_Level, BeforeValidator(str.upper)] = "INFO"
    """Lines below this level are not logged."""
    lease_name: str = ""
    """Lease for leader election; none: no election, so run one process."""
    lease_namespace: str = Field(default="", validate_default=True)
    """Namespace of that Lease; none: the pod's own."""

    @field_validator("lease_namespace")
    @classmethod
    def _own_namespace(cls, named: str, others: ValidationInfo) -> str:
        if named or not others.data.get("lease_name"):
            return named
        try:
            return OWN_NAMESPACE.read_text().strip()
        except OSError:
            raise ValueError("not set, and this is no pod: name the Lease's namespace") from None
