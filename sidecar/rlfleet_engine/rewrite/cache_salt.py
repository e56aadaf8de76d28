"""Salts of the prefix cache, made good for one version of the weights only.

A client's ``cache_salt`` is taken where clients put it and vLLM gets a digest of it and of
the version that the engine holds. So nobody reads what other weights have computed, not
by naming that version's salt either, and within a version equal salts meet. Requests
without a salt stay as they are, byte for byte: for them the cache is flushed. Where a
trainer keeps it through a change, an era begins instead, and they get that for a salt.
It must stay true that a request which no salt separates is known as such: then a change
keeps no caches.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from rlfleet_engine.asgi import Scope, compact
from rlfleet_engine.gate.gate import Holding
from rlfleet_engine.gate.network_guard import computes_nothing
from rlfleet_engine.json_body import has_json, may_name, parsed

_FIELD = "cache_salt"
_NAMES = (_FIELD.encode(),)
_BESIDE = ("nvext", "sampling_params")
"""Objects in the body in which clients put it too; the top level goes first."""
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
"""The routes that generate and pass a salt on to the prefix cache."""


def may_have_salt(scope: Scope) -> bool:
    """Tell by its head whether a request's body has to be looked at."""
    path: str = scope["path"]
    return path.startswith(_PREFIXES) and not computes_nothing(path) and has_json(scope)


def salted(body: bytes, holding: Holding) -> bytes:
    """Make the body's salt good for this version; a body without one is returned itself.

    What is no JSON object, or has a salt that is no text, is vLLM's to refuse.
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
    """Give a body without a salt that of its era; one that cannot have it is returned itself."""
    content = parsed(body) if path in _TAKE_SALT else None
    if content is None:
        return body
    # No client's: theirs are digested with two zero bytes in between.
    return compact(content | {_FIELD: sha256(b"%d" % era).hexdigest()})


def is_unsalted(scope: Scope) -> bool:
    """Tell whether a request may leave in the caches what no salt separates.

    So does whatever computes on a route that takes no salt (audio, pooling), or that came in
    a form in which nobody looked for one.
    """
    if scope["method"] != "POST" or computes_nothing(scope["path"]):
        return False
    return scope["path"] not in _TAKE_SALT or not has_json(scope)


def _places(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield content
    for name in _BESIDE:
        if isinstance(content.get(name), dict):
            yield content[name]


def _combined(salt: str, holding: Holding) -> str:
    """Digest it; counted with the change, so that a version that comes back begins anew.

    A frozen request goes on under its old salt with new weights.
    """
    client = salt.encode("utf-8", "surrogatepass")
    return sha256(b"%s\0%d\0%s" % (holding.version, holding.change, client)).hexdigest()
