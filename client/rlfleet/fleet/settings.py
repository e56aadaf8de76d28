"""What the clients take from a URL and the environment."""

import os
import ssl
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx

from rlfleet.fleet.errors import FleetError
from rlfleet.fleet.flows import Call, Lost

DEFAULT_S = 120.0
"""Seconds for a pause, a flush or a resume, lost replies included."""
UPDATE_S = 1800.0
TOKEN_VARIABLE = "VLLM_API_KEY"  # noqa: S105 - a variable's name
"""prime-rl and vLLM's own clients use it too."""
_CONNECT_S = 10.0

FleetPauseMode = Literal["keep", "wait", "abort"]
"""Requests freeze, finish, or end."""


def root_of(url: str) -> str:
    """Return the URL below which the routes are; raises ValueError for one without a fleet."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or "/fleets/" not in parts.path:
        raise ValueError(
            f"{url!r} is no fleet's URL; it has the form http://OPERATOR:8082/fleets/NAMESPACE/NAME"
        )
    return url.rstrip("/") + "/v1/rl/"


def headers_of(url: str, token: str | None) -> dict[str, str]:
    """Return the headers with the token; a URL with a password needs none.

    Raises ValueError for a token that no header can have, without its text.
    """
    if token is None and urlsplit(url).password:
        return {}
    given = token or os.environ.get(TOKEN_VARIABLE) or ""  # noqa: TID251 - the one reader
    # A file of a mounted Secret often ends with a newline.
    found = given.strip()
    if not (found.isascii() and found.isprintable()):
        raise ValueError("token has characters other than printable ASCII; check its source")
    return {"Authorization": f"Bearer {found}"} if found else {}


def api_server() -> str | None:
    """Return the URL at which a pod finds the API server; None outside a cluster."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST")  # noqa: TID251 - the same
    port = os.environ.get("KUBERNETES_SERVICE_PORT")  # noqa: TID251 - the same
    if not host or not port:
        return None
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def verification_of(ca: Path | str | None) -> ssl.SSLContext:
    """Return how a server's certificate is checked: by the CAs of a file, or the usual ones."""
    if ca is None:
        return httpx.create_ssl_context(trust_env=False)
    return ssl.create_default_context(cafile=ca)


def request_of(call: Call) -> dict[str, Any]:
    """Return the arguments of httpx for a call."""
    limits = {"connect": _CONNECT_S, "read": call.limit_s, "write": _CONNECT_S, "pool": _CONNECT_S}
    kind = {"Content-Type": "application/merge-patch+json"} if call.method == "PATCH" else {}
    return {
        "method": call.method,
        "url": call.route,
        "json": call.body,
        "headers": kind,
        "timeout": httpx.Timeout(**limits),
    }


def lost_by(error: httpx.TransportError) -> Lost:
    """Return what becomes of a request without a reply; raises FleetError if it was never sent."""
    if isinstance(error, httpx.LocalProtocolError):
        # Not `from error`: its text may hold the token.
        raise FleetError("the request is not valid HTTP; check the URL and the token") from None
    return Lost(f"{type(error).__name__} {error}".strip())
