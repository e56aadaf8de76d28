"""The operator's settings: read once from the environment, frozen, passed in."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""What every pod with a ServiceAccount finds there."""


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """What the installation decides; each field names its variable."""

    worker_image: str
    """RLFLEET_WORKER_IMAGE: the image of workers whose fleet names none."""
    namespaces: tuple[str, ...] = ()
    """RLFLEET_NAMESPACES: comma-separated; empty means all."""
    admin_port: int = 8090
    """RLFLEET_ADMIN_PORT: where sidecars listen."""
    metrics_port: int = 8081
    """RLFLEET_METRICS_PORT: /metrics and /healthz of the operator; 0 means none."""
    fleets_port: int = 0
    """RLFLEET_FLEETS_PORT: the fleet API for trainers; 0 means none."""
    poll_seconds: float = 10.0
    """RLFLEET_POLL_SECONDS: how often a worker at rest is asked; changes are seen at once
    through its pod's readiness."""
    sidecar_concurrency: int = 128
    """RLFLEET_SIDECAR_CONCURRENCY: calls to sidecars under way at once, all fleets together."""
    watch_silence_seconds: float = 150.0
    """RLFLEET_WATCH_SILENCE_SECONDS: a watch that tells nothing for longer is dead; the API
    server tells a bookmark about once a minute."""
    log_level: str = "INFO"
    """RLFLEET_LOG_LEVEL: DEBUG, INFO, WARNING or ERROR."""
    lease_name: str = ""
    """RLFLEET_LEASE_NAME: the Lease through which one of several processes leads; empty means
    that there is one process and no election."""
    lease_namespace: str = ""
    """RLFLEET_LEASE_NAMESPACE: where the Lease is; empty means the pod's own namespace."""


def from_environment(environment: Mapping[str, str] | None = None) -> OperatorSettings:
    """Read the settings; raises ValueError that names the variable."""
    env = os.environ if environment is None else environment  # noqa: TID251 - the one reader
    image = env.get("RLFLEET_WORKER_IMAGE", "")
    if not image:
        raise ValueError(
            "RLFLEET_WORKER_IMAGE is not set: name the image made from Dockerfile.worker"
            " (the chart sets it from worker.image)"
        )
    names = env.get("RLFLEET_NAMESPACES", "").split(",")
    return OperatorSettings(
        worker_image=image,
        namespaces=tuple(name.strip() for name in names if name.strip()),
        admin_port=int(_number(env, "RLFLEET_ADMIN_PORT", 8090, 1)),
        metrics_port=int(_number(env, "RLFLEET_METRICS_PORT", 8081, 0)),
        fleets_port=int(_number(env, "RLFLEET_FLEETS_PORT", 0, 0)),
        poll_seconds=_number(env, "RLFLEET_POLL_SECONDS", 10.0, 0.1),
        sidecar_concurrency=int(_number(env, "RLFLEET_SIDECAR_CONCURRENCY", 128, 1)),
        watch_silence_seconds=_number(env, "RLFLEET_WATCH_SILENCE_SECONDS", 150.0, 1.0),
        log_level=_level(env),
        lease_name=env.get("RLFLEET_LEASE_NAME", ""),
        lease_namespace=_lease_namespace(env),
    )


def _number(env: Mapping[str, str], name: str, default: float, least: float) -> float:
    text = env.get(name)
    if text is None or text == "":
        return default
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{name} is {text!r}, expected a number of at least {least}") from None
    if value < least:
        raise ValueError(f"{name} is {text!r}, expected a number of at least {least}")
    return value


def _lease_namespace(env: Mapping[str, str]) -> str:
    named = env.get("RLFLEET_LEASE_NAMESPACE", "")
    if named or not env.get("RLFLEET_LEASE_NAME"):
        return named
    try:
        return OWN_NAMESPACE.read_text().strip()
    except OSError:
        raise ValueError(
            "RLFLEET_LEASE_NAMESPACE is not set and this is no pod: name the namespace of the Lease"
        ) from None


def _level(env: Mapping[str, str]) -> str:
    level = env.get("RLFLEET_LOG_LEVEL", "INFO").upper()
    levels = ("DEBUG", "INFO", "WARNING", "ERROR")
    if level not in levels:
        raise ValueError(f"RLFLEET_LOG_LEVEL is {level!r}, expected one of {', '.join(levels)}")
    return level
