"""Credentials for the trainers' routes, and the bytes of their replies."""

import json

from tests.contract.subject import Subject, client_of
from tests.fakes.worker import Worker


async def test_the_engine_s_own_answers_come_through_byte_for_byte(
    fake: Worker, subject: Subject
) -> None:
    for path in ("/metrics", "/v1/models"):
        own, ours = await subject.engine.get(path), await subject.admin.get(path)
        assert (ours.status_code, ours.content) == (own.status_code, own.content)
        assert ours.headers["content-type"] == own.headers["content-type"]
    assert b'engine="0"' in (await subject.admin.get("/metrics")).content


async def test_health_needs_no_credentials(subject: Subject) -> None:
    async with client_of(subject.admin.base_url) as stranger:
        assert (await stranger.get("/health")).json() == {"status": "ok"}
        assert (await stranger.get("/liveness")).json() == {"status": "ok"}


async def test_a_reply_is_compact_json_with_its_length_and_nothing_is_redirected(
    subject: Subject,
) -> None:
    await subject.serve("step-1")
    encodings = {"accept-encoding": "gzip, br, zstd"}
    body = {"weight_dir": f"{subject.weights}/step-2"}
    replies = [
        await subject.admin.get(path, headers=encodings)
        for path in ("/is_paused", "/get_world_size", "/weight_info", "/health", "/liveness")
    ]
    replies += [
        await subject.admin.post("/pause", headers=encodings),
        await subject.admin.post("/update_weights", json=body, headers=encodings),
        await subject.admin.post("/update_weights", json={}, headers=encodings),
        await subject.admin.post("/engine/get_weight_version", headers=encodings),
        await subject.admin.post("/engine/nothing", headers=encodings),
    ]
    for reply in replies:
        assert reply.headers["content-length"] == str(len(reply.content))
        assert "content-encoding" not in reply.headers
        assert "transfer-encoding" not in reply.headers
        assert reply.headers["content-type"] == "application/json"
        compact = json.dumps(reply.json(), separators=(",", ":"), ensure_ascii=False)
        assert reply.text == compact
    for path in ("/pause/", "/update_weights/", "//pause", "/engine/pause_generation/"):
        assert (await subject.admin.post(path)).status_code == 404, path
