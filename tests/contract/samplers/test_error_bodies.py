"""What clients show of an error: the status line, ``error.message``, or a body of theirs."""

import httpx
import pytest

from tests.contract.subject import Subject, client_of
from tests.contract.transcripts import PAUSE, send
from tests.fakes.worker import Worker


async def test_the_status_line_says_why(subject: Subject) -> None:
    """httpx's raise_for_status, and so prime-rl, shows nothing else."""
    await send(PAUSE, subject)
    reply = await subject.admin.post("/update_weights", json={"weight_dir": "/etc"})

    with pytest.raises(
        httpx.HTTPStatusError, match="422 PathRefused: /etc is not the directory of a version"
    ):
        reply.raise_for_status()
    assert "x-rlfleet-reason" not in reply.headers


@pytest.mark.parametrize(
    "call", ["POST /update_weights", "POST /v1/rl/pause", "GET /nowhere", "POST /engine/nowhere"]
)
async def test_every_error_has_the_message_where_clients_of_openai_look(
    subject: Subject, call: str
) -> None:
    method, _, path = call.partition(" ")

    reply = await subject.admin.request(method, path, json={"weight_dir": 3})

    body = reply.json()
    assert body["error"]["message"] == body["message"]
    assert body["error"]["type"] == body["code"]
    assert body["error"]["code"] == reply.status_code


async def test_prime_rl_without_a_key_gets_an_empty_list_of_models(fake: Worker) -> None:
    async with client_of(fake.admin_url) as stranger:
        reply = await stranger.get("/v1/models")

    assert (reply.status_code, reply.json()["data"]) == (401, [])
    assert reply.reason_phrase.startswith("Unauthorized: token missing or wrong")


async def test_a_status_line_is_one_line_of_ascii(subject: Subject) -> None:
    name = "é\r\nset-cookie: a=b"

    reply = await subject.admin.post("/collective_rpc", json={"method": name})

    assert reply.reason_phrase.startswith("InvalidRequest: method: got ???set-cookie: a=b")
    assert "set-cookie" not in reply.headers
    assert len(reply.reason_phrase) <= 200
