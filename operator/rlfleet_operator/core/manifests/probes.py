"""The kubelet's probes of a worker's containers."""

from rlfleet_operator.core.manifests.owned_objects import ManifestObject

_PATIENCE_S = 5
_SILENT_S = 15
"""After how long a silent sidecar takes its pod out of traffic. On a busy node it is silent for
seconds while the engine serves; an engine that is gone it reports at once."""


def probe(path: str, port: str, *, period: int, failures: int, **scheme: str) -> ManifestObject:
    """Return a probe by GET; ``period`` is in seconds."""
    return {
        "httpGet": {"path": path, "port": port, **scheme},
        "periodSeconds": period,
        "timeoutSeconds": _PATIENCE_S,
        "failureThreshold": failures,
    }


def readiness(path: str, port: str, **scheme: str) -> ManifestObject:
    """Return the sidecar's probe of readiness: one reply against it suffices."""
    once = probe(path, port, period=2, failures=1, **scheme)
    return once | {"timeoutSeconds": _SILENT_S}
