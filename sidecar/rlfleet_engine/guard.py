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
from ipaddress import IPv6Address, ip_address

from rlfleet_contract import api


class Route(Enum):
    """What kind of route a path is."""

    CONTROL = "control"
    """vLLM's and our own control routes, and whatever nobody knows: loopback only."""
    LIVENESS = "liveness"
    """Ours: vLLM has no such route."""
    ALWAYS = "always"
    """Answered whatever the gate says."""
    GATED = "gated"
    """Reads the model: waits while the gate is closed."""


_LIVENESS = api.LIVENESS_PATH
_ALWAYS = frozenset({"/health", "/metrics", "/version", "/v1/models"})
_GATED = frozenset({"/detokenize", "/inference/v1/generate", "/tokenize"})
_DATA_PREFIX = "/v1/"
_NEVER = frozenset({"/v1/load_lora_adapter", "/v1/unload_lora_adapter"})
_PLAIN = re.compile(r"(/[A-Za-z0-9._~:@+,=-]+)+")
_FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip"})


@lru_cache(maxsize=1024)
def route_of(raw_path: bytes, root_path: str = "") -> Route:
    """Classify a request by its path as it came over the wire, query left out."""
    path = raw_path.decode("latin-1")
    if root_path or _PLAIN.fullmatch(path) is None or not {".", ".."}.isdisjoint(path.split("/")):
        return Route.CONTROL
    if path == _LIVENESS:
        return Route.LIVENESS
    if path in _ALWAYS:
        return Route.ALWAYS
    if path in _GATED or (path.startswith(_DATA_PREFIX) and path.lower() not in _NEVER):
        return Route.GATED
    return Route.CONTROL


@lru_cache(maxsize=1024)
def _is_loopback_address(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def is_local(client: object, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Tell whether the peer is in this pod.

    A peer without an address (Unix socket) is not, nor is one that says it forwards:
    uvicorn may have taken its address from a header.
    """
    if not isinstance(client, tuple | list) or not client or not isinstance(client[0], str):
        return False
    return _is_loopback_address(client[0]) and not any(name in _FORWARDED for name, _ in headers)
