"""An engine that asks samplers for a key is proved all the same, and asks them still."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from rlfleet_engine.asgi import Scope, Send
from rlfleet_engine.gate.held_request import Application, Receive
from tests.contract.subject import Subject
from tests.fakes.asgi import send_json
from tests.fakes.worker import Worker

COMPLETIONS = "/v1/completions"
PROMPT = {"prompt": "a", "max_tokens": 1}
_GUARDED = ("/v1", "/v2", "/inference", "/cohere")
"""What vLLM asks a key for; its check stands inside the middleware of --middleware."""


async def _keyed(app: Application, scope: Scope, receive: Receive, send: Send) -> None:
    shown = dict(scope["headers"]).get(b"authorization")
    if scope["path"].startswith(_GUARDED) and shown != b"Bearer sesame":
        await send_json(send, 401, {"error": "Unauthorized"})
    else:
        await app(scope, receive, send)


class KeyedWorker(Worker):
    """Its engine asks for a key."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.engine._answer = partial(_keyed, self.engine._answer)  # type: ignore[method-assign]  # noqa: SLF001
        self.engine.boot()


@pytest.fixture
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Worker]:
    monkeypatch.setenv("VLLM_API_KEY", getattr(request, "param", "sesame"))
    return KeyedWorker


@pytest.fixture
async def proved(subject: Subject) -> Subject:
    await subject.serve(subject.versions.first)
    return subject


async def test_a_version_is_proved_and_samplers_need_the_key(proved: Subject) -> None:
    report = await proved.ok(paths.PREPARE_PATH, proved.versions.second)
    report = await proved.ok(paths.UPDATE_WEIGHTS_PATH, proved.versions.second)
    without = await proved.engine.post(COMPLETIONS, json=PROMPT)
    wrong = await proved.engine.post(
        COMPLETIONS, json=PROMPT, headers={"authorization": "Bearer the-fleet-token"}
    )
    shown = {"authorization": "Bearer sesame"}
    rightly = await proved.engine.post(COMPLETIONS, json=PROMPT, headers=shown)

    assert (report.stage, report.proved) == (Stage.OPEN, proved.versions.second)
    assert (without.status_code, wrong.status_code, rightly.status_code) == (401, 401, 200)


async def test_a_trainer_reads_the_models_from_the_sidecar_without_the_key(
    proved: Subject,
) -> None:
    assert (await proved.admin.get("/v1/models")).status_code == 200
    assert (await proved.engine.get("/v1/models")).status_code == 401


@pytest.mark.parametrize("path", [COMPLETIONS, "/v1/models"])
async def test_a_proxy_that_forwards_a_probe_gets_no_key(proved: Subject, path: str) -> None:
    probe = {paths.PROBE_HEADER: "1", "x-forwarded-for": "10.0.0.7"}

    said = await proved.engine.request(
        "GET" if path == "/v1/models" else "POST", path, json=PROMPT, headers=probe
    )

    assert said.status_code == 401


@pytest.mark.parametrize("kind", ["another"], indirect=True)
async def test_a_key_from_elsewhere_is_named_with_the_way_out(
    subject: Subject, weights: Path
) -> None:
    await subject.ok(paths.PREPARE_PATH, subject.versions.first)

    problem = await subject.refused(
        Code.PROOF_FAILED, paths.UPDATE_WEIGHTS_PATH, subject.versions.first
    )

    assert "VLLM_API_KEY" in problem.message
    assert "engine.extraEnv" in problem.message
