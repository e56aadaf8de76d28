"""Repeats of a rejected command do not keep the sidecar from acting."""

import asyncio
from typing import Any

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from tests.contract.conftest import settled
from tests.contract.subject import Subject
from tests.fakes.worker import Worker
from tests.patience import given_up

LOOK_S = 0.1
"""How long a look at the engine takes: some commands come during each of them."""


class Slow(Worker):
    """A worker whose engine is slow to return the state of its gate."""

    def _application(self) -> Any:
        inner: Any = super()._application()

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            if (scope.get("path"), scope.get("method")) == (paths.GATE_PATH, "GET"):
                await asyncio.sleep(LOOK_S)
            await inner(scope, receive, send)

        return slow


@pytest.fixture
def kind() -> type[Worker]:
    return Slow


async def test_a_change_without_a_driver_ends_despite_rejected_commands(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second, operation="a")
    await subject.ok(paths.PAUSE_PATH, subject.versions.second, operation="a", ttl_s=0.5)

    refused = asyncio.create_task(_refused(subject))
    report = await settled(fake, lambda report: report.stage is Stage.OPEN)
    await given_up(refused)

    assert report.proved == subject.versions.first


async def _refused(subject: Subject) -> None:
    while True:
        version = subject.versions.second
        await subject.refused(Code.WRONG_STAGE, paths.VERIFY_PATH, version, operation="a")
        await asyncio.sleep(LOOK_S / 5)
