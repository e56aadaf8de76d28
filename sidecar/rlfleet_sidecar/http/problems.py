"""Replies with a problem: its fields, OpenAI's ``error``, and the reason in the status line.

ASGI cannot pass a reason for the status line. So an internal header contains it, which the
protocol class removes from the reply.
"""

from typing import Any

import h11
from starlette.responses import JSONResponse, Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from rlfleet_contract.reason_phrases import error_of, phrase_of
from rlfleet_contract.worker.problems import Code, Problem

MODELS_PATH = "/v1/models"
_REASON = b"x-rlfleet-reason"
_AGAIN_S = 1
"""Value of Retry-After with 429."""
_HEAD_BYTES = 64 * 1024
"""uvicorn's default limit."""


def response_to(path: str, problem: Problem, code: int, **also: object) -> Response:
    """Return a problem as the response to a request for this path."""
    fields = problem.model_dump(mode="json")
    error = error_of(problem.code, problem.message, code)
    # prime-rl reads `data` before the status: with no models it retries, without `data` it exits.
    listed: dict[str, object] = {"data": []} if path == MODELS_PATH else {}
    headers = {_REASON.decode(): phrase_of(problem.code, problem.message)}
    if problem.code is Code.TOO_MANY_REQUESTS:
        headers["retry-after"] = str(_AGAIN_S)
    return JSONResponse({**also, **fields, "error": error, **listed}, code, headers)


class Protocol(H11Protocol):
    """uvicorn's protocol, with the problem's reason in the status line."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        limit = self.config.h11_max_incomplete_event_size or _HEAD_BYTES
        self.conn = _Connection(h11.SERVER, limit)


class _Connection(h11.Connection):
    def send_with_data_passthrough(self, event: h11.Event) -> list[bytes] | None:
        # h11's send() calls this.
        shown = _reasoned(event) if isinstance(event, h11.Response) else event
        return super().send_with_data_passthrough(shown)


def _reasoned(response: h11.Response) -> h11.Response:
    found = [value for name, value in response.headers if name == _REASON]
    if not found:
        return response
    headers = [(name, value) for name, value in response.headers if name != _REASON]
    return h11.Response(status_code=response.status_code, headers=headers, reason=found[0])
