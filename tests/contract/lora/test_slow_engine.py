"""An engine whose API server is slow for a moment to list its adapters: no adapter's failure."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from tests.contract.conftest import settled
from tests.contract.lora.test_adapters import (
    NAME,
    adapters,
    adapters_of,
    load,
    refused,
    serving,
    unload,
)
from tests.contract.subject import Subject
from tests.fakes.worker import Worker

__all__ = ["adapters", "serving"]

FENCE: dict[str, Any] = {"fleet": "f", "pod": "p", "epoch": 1, "sequence": 1}


class Slow(Worker):
    """A worker whose engine lists its adapters only when allowed."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.telling = asyncio.Event()
        self.telling.set()
        self.listed = 0
        """How often it has listed them."""

    def _application(self) -> Any:
        inner: Any = super()._application()

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            is_question = (scope.get("path"), scope.get("method")) == (
                paths.ENGINE_ADAPTERS_PATH,
                "GET",
            )
            if is_question:
                await self.telling.wait()
            await inner(scope, receive, send)
            self.listed += is_question

        return slow


@pytest.fixture
def kind() -> type[Worker]:
    return Slow


@pytest.fixture
def identity() -> dict[str, object]:
    """Have a trainer wait for no engine: that it waits is shown elsewhere."""
    return {"trainer_up_s": 0}


@pytest.fixture
def slow(fake: Worker) -> Slow:
    assert isinstance(fake, Slow)
    return fake


async def test_an_operator_s_load_is_not_given_up_for_a_slow_engine(
    slow: Slow, serving: Subject, adapters: Path
) -> None:
    slow.telling.clear()

    problem = await refused(
        serving, Code.ENGINE_UNREACHABLE, adapters / "step-1", operation="adapter-1", fence=FENCE
    )

    # What stands in the book under its operation is not tried again.
    assert (problem.retryable, await adapters_of(serving)) == (True, {})
    slow.telling.set()
    fence = FENCE | {"sequence": 2}
    report = await load(serving, adapters / "step-1", "step-1", operation="adapter-1", fence=fence)
    assert (report.adapters[0].is_loaded, report.adapters[0].problem) == (True, None)


async def test_prime_rl_repeats_what_a_slow_engine_did_not_take(
    slow: Slow, serving: Subject, adapters: Path
) -> None:
    body = {"lora_name": NAME, "lora_path": str(adapters / "step-1")}
    slow.telling.clear()

    reply = await serving.admin.post("/load_lora_adapter", json=body)

    assert (reply.status_code, reply.json()["code"]) == (500, Code.ENGINE_UNREACHABLE)
    slow.telling.set()
    assert (await serving.admin.post("/load_lora_adapter", json=body)).status_code == 200


async def test_an_unload_that_a_slow_engine_did_not_take_leaves_no_mark(
    slow: Slow, serving: Subject, adapters: Path
) -> None:
    await load(serving, adapters / "step-1", "step-1")
    slow.telling.clear()

    reply = await serving.admin.post("/v1/unload_lora_adapter", json={"lora_name": NAME})

    assert (reply.status_code, reply.json()["code"]) == (503, Code.ENGINE_UNREACHABLE)
    adapter = (await adapters_of(serving))[NAME]
    assert (adapter.is_loaded, adapter.problem) == (True, None)
    slow.telling.set()
    assert (await unload(serving)).adapters == []


async def test_a_slow_engine_with_an_earlier_report_opens_with_its_adapters(
    slow: Slow, serving: Subject, adapters: Path
) -> None:
    await load(serving, adapters / "step-1", "step-1")
    before = slow.listed
    await slow.restart_engine()
    await settled(slow, lambda found: found.stage is Stage.CLOSED)
    async with asyncio.timeout(30):
        while slow.listed == before:  # noqa: ASYNC110 - the sidecar's watch asks
            await asyncio.sleep(0.01)
    slow.telling.clear()

    report = await serving.serve(paths.BASE_VERSION)

    assert (report.stage, report.adapters[0].is_loaded) == (Stage.OPEN, True)
    assert report.adapters[0].problem is None
