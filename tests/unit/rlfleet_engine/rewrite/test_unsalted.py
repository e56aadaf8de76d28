"""Each route of vLLM's that computes is salted, or known as one that no salt separates."""

from pathlib import Path

import httpx
import pytest

from rlfleet_engine.asgi import Scope, Send
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import Receive
from rlfleet_engine.gate.network_guard import Route, route_of
from rlfleet_engine.middleware import Extension
from rlfleet_engine.rewrite.cache_salt import is_unsalted

SALTED, MARKED, NOTHING = "salted", "marked", "computes nothing"
JSON = "application/json"
FORM = "multipart/form-data; boundary=x"
ROUTES = [
    ("POST", "/inference/v1/generate", JSON, SALTED),
    ("POST", "/v1/chat/completions", JSON, SALTED),
    ("POST", "/v1/chat/completions/batch", JSON, SALTED),
    ("POST", "/v1/completions", JSON, SALTED),
    ("POST", "/v1/messages", JSON, SALTED),
    ("POST", "/v1/responses", JSON, SALTED),
    ("POST", "/v1/systemone", JSON, SALTED),
    ("POST", "/v1/audio/transcriptions", FORM, MARKED),
    ("POST", "/v1/audio/translations", FORM, MARKED),
    ("POST", "/v1/embeddings", JSON, MARKED),
    ("POST", "/v1/rerank", JSON, MARKED),
    ("POST", "/v1/score", JSON, MARKED),
    ("GET", "/v1/models", "", NOTHING),
    ("POST", "/detokenize", JSON, NOTHING),
    ("POST", "/tokenize", JSON, NOTHING),
    ("POST", "/v1/chat/completions/derender", JSON, NOTHING),
    ("POST", "/v1/chat/completions/render", JSON, NOTHING),
    ("POST", "/v1/completions/derender", JSON, NOTHING),
    ("POST", "/v1/completions/render", JSON, NOTHING),
    ("POST", "/v1/messages/count_tokens", JSON, NOTHING),
    ("POST", "/v1/messages/render", JSON, NOTHING),
    ("POST", "/v1/responses/render", JSON, NOTHING),
]
"""Those of vLLM 0.32's route table that the guard shows, websockets and what the extension
refuses (stored responses) left out. A route that is not here counts as marked."""


def scope_of(method: str, path: str, kind: str = JSON) -> Scope:
    headers = [(b"content-type", kind.encode())]
    return {"type": "http", "method": method, "path": path, "headers": headers}


class Engine:
    """Keeps what reached vLLM, behind a gate in its first era."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.gate = Gate(file, "boot-1")
        self.gate.open()
        self.gate.begin_era()
        self.bodies: list[bytes] = []

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        self.bodies.append((await receive())["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def asked(self, method: str, path: str, kind: str) -> None:
        extension = Extension(self, self.gate, turns={})
        transport = httpx.ASGITransport(extension, client=("10.0.0.9", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            head = {"content-type": kind}
            await client.request(method, path, content=b'{"input":"x"}', headers=head)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path / "gate")


@pytest.mark.parametrize(("method", "path", "kind", "expected"), ROUTES)
async def test_every_route_that_computes_is_salted_or_marks_the_boot(
    engine: Engine, method: str, path: str, kind: str, expected: str
) -> None:
    assert route_of(path.encode()) in {Route.GATED, Route.ALWAYS}

    await engine.asked(method, path, kind)

    assert len(engine.bodies) == 1
    assert (b"cache_salt" in engine.bodies[0]) is (expected == SALTED)
    assert is_unsalted(scope_of(method, path, kind)) is (expected == MARKED)
    has_marked = Gate(engine.file, "boot-1").has_unsalted
    assert has_marked is (expected == MARKED)
    assert not Gate(engine.file, "boot-2").has_unsalted


@pytest.mark.parametrize("path", ["/v1/no_such_route", "/v1/a/b"])
def test_a_route_that_is_not_known_marks_it(path: str) -> None:
    assert is_unsalted(scope_of("POST", path))
    assert not is_unsalted(scope_of("GET", path))


def test_a_body_that_is_not_searched_for_a_salt_counts_as_unsalted() -> None:
    assert is_unsalted(scope_of("POST", "/v1/completions", "text/plain"))
