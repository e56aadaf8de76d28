"""How many workers may be out of service at once; integers only."""

from rlfleet_operator.crd.fleet_spec import FleetSpec


def max_unavailable(spec: FleetSpec) -> int:
    """Return how many workers of a fleet may be unavailable at once."""
    return resolve(spec.rollout.max_unavailable, spec.replicas)


def resolve(limit: int | str, replicas: int) -> int:
    """Return ``maxUnavailable`` as a number of workers: percentages round down, at least 1."""
    if isinstance(limit, str):
        limit = replicas * int(limit.removesuffix("%")) // 100
    return max(1, limit)


def left(limit: int, out: int) -> int:
    """Return how many more workers may be taken out of service."""
    return max(0, limit - out)


def share(part: int | str, replicas: int) -> int:
    """Return ``part`` as a number of workers: percentages round down, 0 is allowed."""
    if isinstance(part, str):
        part = replicas * int(part.removesuffix("%")) // 100
    return min(part, replicas)
