"""Binds the salts of the prefix cache to one version of the weights.

vLLM gets a digest of the client's ``cache_salt`` and the engine's version. So no request reads
cache entries of other weights, and equal salts share entries within a version. A request
without a salt stays unchanged byte for byte, because a change flushes the cache. If a trainer
keeps the cache through a change, a new era starts, and such requests get the era as their salt.
A request that ends up without a salt must be recorded, because then a change must not keep the
caches.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from rlfleet_engine.asgi import Scope, compact
from rlfleet_engine.gate.gate import EngineVersion
from rlfleet_engine.gate.network_guard import computes_nothing
from rlfleet_engine.json_body import has_json, may_name, parsed

_FIELD = "cache_salt"
_NAMES = (_FIELD.encode(),)
_BESIDE = ("nvext", "sampling_params")
"""Objects in the body where clients put it too; the top level has precedence."""
_PREFIXES = ("/v1/", "/inference/")
_TAKE_SALT = frozenset(
    {
        "/inference/v1/generate",
        "/v1/chat/completions",
        "/v1/chat/completions/batch",
        "/v1/completions",
        "/v1/messages",
        "/v1/responses",
        "/v1/systemone",
    }
)
"""The routes that use a salt in the prefix cache."""


def may_have_salt(scope: Scope) -> bool:
    """Return by the head whether a request's body may have a salt."""
    path: str = scope["path"]
    return path.startswith(_PREFIXES) and not computes_nothing(path) and has_json(scope)


def salted(body: bytes, holding: EngineVersion) -> bytes:
    """Bind the body's salt to this version; return a body without a salt unchanged.

    vLLM rejects a body that is no JSON object, or a salt that is no string.
    """
    content = parsed(body) if may_name(body, _NAMES) else None
    if content is None:
        return body
    found = [place.pop(_FIELD) for place in _places(content) if place.get(_FIELD) is not None]
    if not found:
        return body
    salt = found[0]
    is_text = isinstance(salt, str) and salt
    return compact(content | {_FIELD: _combined(salt, holding) if is_text else salt})


def in_era(body: bytes, era: int, path: str) -> bytes:
    """Add the era's salt to a body without one, if its route takes a salt."""
    content = parsed(body) if path in _TAKE_SALT else None
    if content is None:
        return body
    # Differs from every client's, whose digest includes two zero bytes.
    return compact(content | {_FIELD: sha256(b"%d" % era).hexdigest()})


def is_unsalted(scope: Scope) -> bool:
    """Return whether a request may leave cache entries without a salt.

    This holds for routes that take no salt (audio, pooling), and for bodies other than JSON.
    """
    if scope["method"] != "POST" or computes_nothing(scope["path"]):
        return False
    return scope["path"] not in _TAKE_SALT or not has_json(scope)


def _places(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield content
    for name in _BESIDE:
        if isinstance(content.get(name), dict):
            yield content[name]


def _combined(salt: str, holding: EngineVersion) -> str:
    """Digest salt, version and change; with the change, a version that returns starts empty.

    A request that was paused (mode keep) continues under its old salt with the new weights.
    """
    client = salt.encode("utf-8", "surrogatepass")
    return sha256(b"%s\0%d\0%s" % (holding.version, holding.change, client)).hexdigest()
