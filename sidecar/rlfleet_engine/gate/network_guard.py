"""Which requests the network may see answered, decided on the raw path alone.

Default deny: a path is a data route only if it is one of ours, byte for byte. A path
with an empty or dot segment, an escape or any unusual character is no data route, so
no two parsers can disagree about it. Under a root path the same words lead elsewhere,
so there nothing is one. vLLM's control routes need no key even with
``--api-key``; this is the only thing between them and the network.
"""

import re
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from rlfleet_contract import paths


class Route(Enum):
    """What kind of route a path is."""

    CONTROL = "control"
    """vLLM's and our own control routes, and whatever nobody knows: loopback only."""
    LIVENESS = "liveness"
    """Ours: vLLM has no such route."""
    ALWAYS = "always"
    """Answered whatever the gate says."""
    GATED = "gated"
    """Waits while the gate is closed, if it computes."""


_LIVENESS = paths.LIVENESS_PATH
ALWAYS = frozenset({"/health", "/metrics", "/version", "/v1/models"})
GATED = frozenset({"/detokenize", "/inference/v1/generate", "/tokenize"})
_DATA_PREFIX = "/v1/"
_NEVER = frozenset({"/v1/load_lora_adapter", "/v1/unload_lora_adapter"})
_COMPUTE_NOTHING = frozenset({"/detokenize", "/tokenize", "/v1/messages/count_tokens"})
_RENDERING = ("/render", "/derender")
"""They hand a salt back, to be sent to another route."""
_PLAIN = re.compile(r"(/[A-Za-z0-9._~:@+,=-]+)+")
_OWN = frozenset(map(ip_address, ("127.0.0.1", "::1")))
_FORWARDED = frozenset({b"forwarded", b"via", b"x-forwarded-for", b"x-real-ip", b"x-request-id"})
_MESH = (b"x-envoy-", b"l5d-")
"""What Envoy (Istio) and Linkerd put into requests that they hand on."""


@lru_cache(maxsize=1024)
def route_of(raw_path: bytes, root_path: str = "") -> Route:
    """Classify a request by its path as it came over the wire, query left out."""
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
    """Decide whether a data route reads no weights, whatever the engine holds."""
    return path in _COMPUTE_NOTHING or path.endswith(_RENDERING)


def is_local(client: object, server: object, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Tell whether the peer is in this pod, by both ends of its connection.

    A peer without an address (Unix socket) is not, nor is one that says it forwards:
    uvicorn may have taken its address from a header, and a proxy in the pod is not who asks.
    Not every loopback address is a peer's: a mesh's proxy speaks from 127.0.0.6 for others.
    """
    if _address(client) not in _OWN or not _is_loopback(server):
        return False
    return not any(name in _FORWARDED or name.startswith(_MESH) for name, _ in headers)


def _is_loopback(end: object) -> bool:
    address = _address(end)
    return address is not None and address.is_loopback


def _address(end: object) -> IPv4Address | IPv6Address | None:
    """Return the address of one end of a connection, which ASGI has with its port."""
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
