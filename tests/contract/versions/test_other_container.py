"""A worker whose extension is of another release than its sidecar says what does not fit."""

import json
from typing import Any

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from rlfleet_engine.asgi import Scope, Send
from tests.contract.subject import Subject
from tests.fakes.worker import Worker

REJECTION = b'[{"type":"literal_error","loc":["action"],"msg":"Input should be open"}]'
"""As the extension rejects an action of the gate that its release does not have."""


class Ignorant:
    """Stands in front of an engine whose gate knows no trial of a version."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:
        if (scope["type"], scope.get("path")) != ("http", paths.GATE_PATH):
            await self._app(scope, receive, send)
            return
        message = await receive()
        body = message.get("body", b"")
        if body and json.loads(body)["action"] == "try":
            length = [(b"content-length", b"%d" % len(REJECTION))]
            await send({"type": "http.response.start", "status": 400, "headers": length})
            await send({"type": "http.response.body", "body": REJECTION})
            return

        async def again() -> Any:
            return message

        await self._app(scope, again, send)


class Mixed(Worker):
    """Has a sidecar of this release and an extension of another."""

    def _application(self) -> object:
        return Ignorant(self.engine.application)


@pytest.fixture
def kind() -> type[Worker]:
    return Mixed


async def test_doubt_names_what_the_extension_rejects(fake: Worker, subject: Subject) -> None:
    version = subject.versions.first
    await subject.ok(paths.PREPARE_PATH, version)

    problem = await subject.refused(Code.PROOF_FAILED, paths.UPDATE_WEIGHTS_PATH, version)

    report = await fake.report()
    assert (report.stage, report.failure) == (Stage.DOUBT, problem)
    assert problem.message.startswith(f"{paths.GATE_PATH} returned 400: ")
    assert "literal_error" in problem.message
