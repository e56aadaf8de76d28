"""The connections to one engine."""

import httpx

_LIMITS = httpx.Limits(max_connections=8, max_keepalive_connections=1, keepalive_expiry=2.0)
"""Below vLLM's 5 s, because a connection that it is about to close must not be used.

One is kept: of several that expired together, httpcore closes the first alone if the request that
closes them is cancelled."""


def engine_transport() -> httpx.AsyncHTTPTransport:
    """Return the connections to one engine."""
    return httpx.AsyncHTTPTransport(verify=False, trust_env=False, limits=_LIMITS)
