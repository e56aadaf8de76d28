"""A trainer at the sidecar: repeats, timeouts, kept caches and transfers."""

import asyncio
from pathlib import Path

import httpx
import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from tests.contract.conftest import settled
from tests.contract.subject import Subject
from tests.contract.transcripts import PAUSE, RESUME, Call, resume_refused, send, update
from tests.fakes.behaviour import Behaviour
from tests.fakes.checkpoints import write_version
from tests.fakes.worker import Worker
from tests.patience import given_up


@pytest.fixture
def identity() -> dict[str, object]:
    """How little these workers wait for what passes by itself."""
    return {"trainer_busy_s": 0.2, "trainer_up_s": 0.2}


@pytest.fixture
async def paused(subject: Subject) -> Subject:
    """A worker that serves the first version and was paused by a trainer."""
    await subject.serve("step-1")
    await send(PAUSE, subject)
    return subject


def updating(subject: Subject, version: str) -> asyncio.Task[httpx.Response]:
    body = {"weight_dir": f"{subject.weights}/{version}"}
    return asyncio.create_task(subject.admin.post("/update_weights", json=body))


@pytest.mark.parametrize("is_paused", [True, False])
async def test_the_same_update_twice_is_one_load_and_both_get_the_answer(
    fake: Worker, subject: Subject, *, is_paused: bool
) -> None:
    await subject.serve("step-1")
    if is_paused:
        await send(PAUSE, subject)
    fake.engine.behaviour = Behaviour(reload_s=0.2)
    before = fake.engine.reloads

    replies = await asyncio.gather(*(updating(subject, "step-2") for _ in range(3)))

    assert [reply.status_code for reply in replies] == [200] * 3
    assert len({reply.content for reply in replies}) == 1
    assert fake.engine.reloads == before + 1


async def test_a_repeat_after_a_timeout_joins_and_one_after_the_end_loads_nothing(
    fake: Worker, paused: Subject
) -> None:
    fake.engine.behaviour = Behaviour(reload_s=0.4)
    before = fake.engine.reloads
    lost = updating(paused, "step-2")
    await paused.until(lambda report: report.stage is Stage.LOADING)
    await given_up(lost)

    joined = await updating(paused, "step-2")
    late = await updating(paused, "step-2")

    assert (joined.status_code, late.status_code) == (200, 200)
    assert joined.content == late.content
    assert fake.engine.reloads == before + 1


async def test_an_update_waits_for_the_marker_though_the_worker_is_paused_already(
    paused: Subject, weights: Path
) -> None:
    directory = write_version(weights, "step-9", seed=5)
    (directory / "STABLE").unlink()
    (directory / "NCCL_READY").touch()
    waiting = [updating(paused, "step-9") for _ in range(2)]
    await paused.until(lambda r: r.progress is not None and r.progress.waiting_for is not None)

    (directory / "STABLE").touch()

    assert [(await reply).status_code for reply in waiting] == [200, 200]
    await send(RESUME, paused)
    assert (await paused.report()).proved == "step-9"


async def test_a_resume_while_an_update_waits_or_loads_is_refused(
    fake: Worker, paused: Subject, weights: Path
) -> None:
    fake.engine.behaviour = Behaviour(reload_s=0.2)
    directory = write_version(weights, "step-9", seed=5)
    (directory / "STABLE").unlink()
    waiting = updating(paused, "step-9")
    await paused.until(lambda r: r.progress is not None and r.progress.waiting_for is not None)
    early = Call("POST /resume", 503, {"code": "Busy", "message": "step-9 has not ended"})
    await send(early, paused)

    (directory / "STABLE").touch()
    await paused.until(lambda report: report.stage is Stage.LOADING)
    await send(early, paused)

    assert (await waiting).status_code == 200
    await send(RESUME, paused)


async def test_a_newer_update_takes_the_place_of_one_that_waits(paused: Subject) -> None:
    waiting = updating(paused, "step-404")
    await paused.until(lambda r: r.progress is not None and r.progress.waiting_for is not None)

    newer = await updating(paused, "step-2")

    assert (newer.status_code, newer.json()["weight_version"]) == (200, "step-2")
    older = await waiting
    assert (older.status_code, older.json()["code"]) == (409, Code.BUSY)


async def test_an_update_of_a_worker_that_runs_is_a_whole_change(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve("step-1")

    reply = await updating(subject, "step-2")

    assert reply.status_code == 200
    assert ((await subject.report()).stage, fake.engine.gate.is_open) == (Stage.OPEN, True)
    await send(RESUME, subject)


@pytest.mark.parametrize(("clear", "flushes"), [("false", 0), ("true", 1)])
async def test_the_caches_live_if_the_pause_asks_for_it(
    fake: Worker, subject: Subject, clear: str, flushes: int
) -> None:
    await subject.serve("step-1")
    before = fake.engine.flushes

    await subject.admin.post(f"/pause?clear_cache={clear}")
    await send(update("step-2"), subject)

    assert fake.engine.flushes - before == flushes


@pytest.mark.parametrize(("mode", "reason"), [("abort", "abort"), ("wait", "length")])
async def test_the_pause_s_mode_decides_about_requests_in_flight(
    subject: Subject, mode: str, reason: str
) -> None:
    await subject.serve("step-1")
    asked = asyncio.create_task(subject.complete(max_tokens=300))
    await subject.until(lambda report: report.in_flight > 0)

    assert (await subject.admin.post(f"/pause?mode={mode}")).json()["mode"] == mode

    assert (await asyncio.wait_for(asked, 30)).json()["choices"][0]["finish_reason"] == reason


async def test_requests_wait_from_the_pause_to_the_resume(fake: Worker, paused: Subject) -> None:
    asked = asyncio.create_task(paused.complete(max_tokens=2))
    await send(update("step-2"), paused)
    await asyncio.sleep(0.1)
    assert not asked.done()

    await send(RESUME, paused)

    assert (await asked).status_code == 200


async def test_a_restarted_sidecar_still_refuses_the_resume_after_a_failed_update(
    fake: Worker, paused: Subject
) -> None:
    await send(update("step-truncated", 422), paused)
    await fake.stop_sidecar()
    await fake.start_sidecar()
    await settled(fake, lambda report: report.stage is Stage.PAUSED)

    await send(resume_refused(), paused)


async def test_a_restarted_sidecar_still_knows_that_a_trainer_means_to_broadcast(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve("step-1")
    await send(Call("POST /init_broadcaster", 400), subject)
    await fake.stop_sidecar()
    await fake.start_sidecar()
    await settled(fake, lambda report: report.stage is Stage.OPEN)

    await send(PAUSE, subject)
    reply = await subject.admin.post("/update_weights", json={"weight_dir": None})

    assert (reply.status_code, reply.json()["code"]) == (400, Code.INVALID_REQUEST)
    await send(resume_refused(), subject)


async def test_an_update_that_a_killed_sidecar_had_begun_counts_as_failed(
    fake: Worker, paused: Subject, tmp_path: Path
) -> None:
    journal = tmp_path / "pod" / "state" / "worker.json"
    waiting = updating(paused, "step-404")
    await paused.until(lambda r: r.progress is not None and r.progress.waiting_for is not None)
    left = journal.read_bytes()
    await fake.stop_sidecar()
    await given_up(waiting)
    journal.write_bytes(left)  # What a SIGKILL would have left.
    await fake.start_sidecar()
    await settled(fake, lambda report: report.stage is Stage.PAUSED)

    await send(resume_refused(message="step-404 has not ended"), paused)

    await send(update("step-2"), paused)
    await send(RESUME, paused)


async def test_a_trainer_does_not_cross_a_change_that_an_operator_leads(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve("step-1")
    fence = {"fleet": "f", "pod": "p", "epoch": 3, "sequence": 1}
    await subject.ok(paths.PREPARE_PATH, "step-2", operation="rollout-1")
    await subject.ok(paths.PAUSE_PATH, "step-2", operation="rollout-1", fence=fence, ttl_s=60)

    for path in ("/pause", "/resume", "/wake_up", "/reset_prefix_cache", "/engine/flush_cache"):
        reply = await subject.admin.post(path)
        assert (reply.status_code, reply.json()["code"]) == (503, Code.BUSY), path
    refused = await updating(subject, "step-2")

    assert (refused.status_code, refused.json()["code"]) == (503, Code.BUSY)
    assert (await fake.report()).stage is Stage.PAUSED
    change = {"operation": "rollout-1", "fence": fence | {"sequence": 2}}
    assert (await subject.ok(paths.UPDATE_WEIGHTS_PATH, "step-2", **change)).stage is Stage.OPEN


async def test_what_an_operator_heals_is_not_what_the_trainer_resumes(
    fake: Worker, paused: Subject
) -> None:
    fake.engine.behaviour = Behaviour(reload_fails=True)
    await send(update("step-2", 422), paused)
    fake.engine.behaviour = Behaviour()
    fence = {"fleet": "f", "pod": "p", "epoch": 3, "sequence": 1}
    await paused.ok(paths.PREPARE_PATH, "step-1", operation="catch-up")
    healed = await paused.ok(paths.UPDATE_WEIGHTS_PATH, "step-1", operation="catch-up", fence=fence)

    assert (healed.stage, healed.proved) == (Stage.OPEN, "step-1")
    await send(resume_refused(message="step-1"), paused)


async def test_an_operator_takes_over_what_a_trainer_left(paused: Subject) -> None:
    fence = {"fleet": "f", "pod": "p", "epoch": 3, "sequence": 1}
    await paused.ok(paths.PREPARE_PATH, "step-2", operation="rollout-1")

    report = await paused.ok(
        paths.UPDATE_WEIGHTS_PATH, "step-2", operation="rollout-1", fence=fence
    )

    assert (report.stage, report.proved) == (Stage.OPEN, "step-2")


async def test_a_worker_that_proved_nothing_is_not_resumed_and_an_update_brings_it_up(
    fake: Worker, subject: Subject
) -> None:
    for call in ("/pause", "/resume"):
        reply = await subject.admin.post(call)
    assert (reply.status_code, reply.json()["code"]) == (409, Code.WRONG_STAGE)
    assert not fake.engine.gate.is_open

    await send(update("step-2"), subject)
    await send(RESUME, subject)
    assert (await subject.report()).proved == "step-2"


async def test_the_model_that_the_engine_boots_with_is_the_version_base(
    paused: Subject, model: Path
) -> None:
    reply = await paused.admin.post("/update_weights", json={"weight_dir": str(model)})

    assert reply.json()["weight_version"] == paths.BASE_VERSION


async def test_a_lost_engine_is_reported_and_may_be_asked_again(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve("step-1")
    await fake.kill_engine()
    await settled(fake, lambda report: report.stage is Stage.DOWN)

    asked = {
        "GET": ("/health", "/liveness", "/v1/models", "/metrics", "/get_world_size", "/is_paused"),
        "POST": ("/pause", "/reset_prefix_cache", "/engine/liveness_probe", "/resume"),
    }
    replies = [await subject.admin.request(m, path) for m, known in asked.items() for path in known]
    replies.append(await updating(subject, "step-2"))

    assert {reply.status_code for reply in replies} == {503}
    assert replies[1].json() == {"status": "engine_unresponsive"}
    assert await subject.admin.get("/live")


WRONG: dict[str, tuple[str, object]] = {
    "neither key": ("/update_weights", {}),
    "both keys": ("/update_weights", {"weight_dir": "/w", "update_info": {}}),
    "a number for a directory": ("/update_weights", {"weight_dir": 3}),
    "no object": ("/update_weights", []),
    "another mode": ("/pause?mode=later", None),
    "no truth value": ("/pause?clear_cache=perhaps", None),
    "no method": ("/collective_rpc", {}),
    "a method with two directories": (
        "/collective_rpc",
        {"method": "reload_weights", "args": ["/w"], "kwargs": {"weights_path": "/w"}},
    ),
    "a method without one": ("/collective_rpc", {"method": "update_weights_from_path"}),
    "no version": ("/update_weight_version", {}),
    "no version for Dynamo": ("/engine/set_weight_version", {}),
}


@pytest.mark.parametrize("name", WRONG)
async def test_what_cannot_be_meant_is_refused_with_its_name_and_changes_nothing(
    subject: Subject, name: str
) -> None:
    path, body = WRONG[name]
    before = await subject.serve("step-1")

    reply = await subject.admin.post(path, json=body)

    assert (reply.status_code, reply.json()["code"]) == (400, Code.INVALID_REQUEST), reply.text
    assert reply.json()["status"] == "error"
    assert ": " in reply.json()["message"]
    assert (await subject.report()).stage is before.stage


DIRECTORIES = [
    "step-1",
    "{}/../step-1",
    "{}/step-1/model",
    "{}",
    "/",
    "{}/.hidden",
    "{}/base",
    "{}/a b",
]


@pytest.mark.parametrize("directory", DIRECTORIES)
async def test_a_directory_that_is_no_version_s_is_refused_and_named(
    subject: Subject, directory: str
) -> None:
    await subject.serve("step-1")
    named = directory.format(subject.weights)

    reply = await subject.admin.post("/update_weights", json={"weight_dir": named})

    assert (reply.status_code, reply.json()["code"]) == (422, Code.PATH_REFUSED)
    assert named in reply.json()["message"]
    assert "RLFLEET_TRAINER_SAVED_PATH" in reply.json()["message"]


async def test_a_slash_at_the_end_of_a_directory_does_not_matter(paused: Subject) -> None:
    reply = await updating(paused, "step-2/")

    assert reply.json()["weight_version"] == "step-2"


async def test_a_worker_is_alive_while_its_engine_is_paused_or_reloads(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve("step-1")
    await send(PAUSE, subject)
    assert (await subject.admin.get("/liveness")).status_code == 200

    fake.engine.behaviour = Behaviour(reload_s=1.0)
    loading = asyncio.create_task(send(update("step-2"), subject))
    await settled(fake, lambda report: report.stage is Stage.LOADING)
    assert (await subject.admin.get("/liveness")).json() == {"status": "ok"}
    await loading


PROBES = {"/engine/liveness_probe": {}, "/collective_rpc": {"method": "liveness_probe"}}


async def test_a_worker_whose_engine_hangs_is_not_alive(fake: Worker, subject: Subject) -> None:
    await subject.serve("step-1")
    assert (await subject.admin.get("/liveness")).status_code == 200
    for path, body in PROBES.items():
        assert (await subject.admin.post(path, json=body)).status_code == 200

    fake.engine.behaviour = Behaviour(core_dies=True)
    hung = await subject.admin.get("/liveness")

    # Its API server still answers, and /health does not show it.
    assert (hung.status_code, hung.json()) == (503, {"status": "engine_unresponsive"})
    assert (await subject.admin.get("/health")).status_code == 200
    for path, body in PROBES.items():
        probed = await subject.admin.post(path, json=body)
        assert (probed.status_code, probed.json()["status"]) == (503, "error"), path
        assert probed.json()["code"] == Code.ENGINE_UNREACHABLE


async def test_a_path_with_a_nul_is_an_update_that_failed(paused: Subject) -> None:
    body = {"weight_dir": f"{paused.weights}/a\0b"}

    update = await paused.admin.post("/update_weights", json=body)
    resume = await paused.admin.post("/resume")

    assert (update.status_code, update.json()["code"]) == (422, Code.PATH_REFUSED)
    assert resume.status_code == 409
