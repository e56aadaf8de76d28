"""The network guard: which routes the network may use, decided by the raw path only.

Default deny: a data route must match the list here byte for byte. A path with an empty or dot
segment, an escape or an unusual character is no data route, so parsers cannot disagree about
it. With a root path the same path means another route, so then there are no data routes.
vLLM's control routes need no key even with ``--api-key``; only this guard protects them.
"""

import re
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from rlfleet_contract import paths


class Route(Enum):
    """The kind of a route."""

    CONTROL = "control"
    """Control routes of vLLM and rlfleet, and all unknown ones: loopback only."""
    LIVENESS = "liveness"
    """The extension's own /liveness."""
    ALWAYS = "always"
    """Answered even while the gate is closed."""
    GATED = "gated"
    """Waits while the gate is closed, if it reads the model."""


_LIVENESS = paths.LIVENESS_PATH
ALWAYS = frozenset({"/health", "/metrics", "/tokenizer_info", "/version", "/v1/models"})
GATED = frozenset({"/detokenize", "/inference/v1/generate", "/tokenize"})
_DATA_PREFIX = "/v1/"
_NEVER = frozenset({"/v1/load_lora_adapter", "/v1/unload_lora_adapter"})
_COMPUTE_NOTHING = frozenset({"/detokenize", "/tokenize", "/v1/messages/count_tokens"})
_RENDERING = ("/render", "/derender")
"""These routes return the client's salt, for its request to another route."""
_PLAIN = re.compile(r"(/[A-Za-z0-9._~:@+,=-]+)+")
_OWN = frozenset(map(ip_address, ("127.0.0.1", "::1")))
_FORWARDED = frozenset({b"forwarded", b"via", b"x-forwarded-for", b"x-real-ip", b"x-request-id"})
_MESH = (b"x-envoy-", b"l5d-")
"""Headers that Envoy (Istio) and Linkerd add to requests that they forward."""


@lru_cache(maxsize=1024)
def route_of(raw_path: bytes, root_path: str = "") -> Route:
    """Classify a request by its path on the wire, without the query."""
    path = raw_path.decode("latin-1")
    if root_path or _PLAIN.fullmatch(path) is None or not {".", ".."}.isdisjoint(path.split("/")):
        return Route.CONTROL
    if path == _LIVENESS:
        return Route.LIVENESS
    if path in ALWAYS:
        return Route.ALWAYS
    if path in GATED or (path.startswith(_DATA_PREFIX) and path.lower() not in _NEVER):
        return Route.GATED
    return Route.CONTROL


def computes_nothing(path: str) -> bool:
    """Return whether a data route reads no weights, so that it needs no gate."""
    return path in _COMPUTE_NOTHING or path.endswith(_RENDERING)


def is_local(client: object, server: object, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether the peer is in this pod, by both ends of its connection.

    A peer without an address (Unix socket) is not. Nor is a request with a proxy's headers:
    uvicorn may take the address from one, and a proxy in the pod forwards for others. Of loopback
    only 127.0.0.1 and ::1 count, because a mesh's proxy uses 127.0.0.6 for remote peers.
    """
    if _address(client) not in _OWN or not _is_loopback(server):
        return False
    return not any(name in _FORWARDED or name.startswith(_MESH) for name, _ in headers)


def _is_loopback(end: object) -> bool:
    address = _address(end)
    return address is not None and address.is_loopback


def _address(end: object) -> IPv4Address | IPv6Address | None:
    """Return the address of an ASGI (host, port) pair."""
    if not isinstance(end, tuple | list) or not end or not isinstance(end[0], str):
        return None
    return _parsed(end[0])


@lru_cache(maxsize=1024)
def _parsed(host: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
