"""A volume whose server is gone: every access to a file there blocks for ever."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.worker.commands import (
    PauseRequest,
    PrepareRequest,
    ReloadRequest,
    Timeouts,
    UpdateRequest,
    Verb,
)
from rlfleet_contract.worker.fence import Fence
from rlfleet_contract.worker.lora import LoadAdapterRequest
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Running, Stage, WorkerReport
from rlfleet_sidecar.cache.store import VersionStore
from rlfleet_sidecar.change.executor import Executor
from rlfleet_sidecar.change.fencing import Fencing
from rlfleet_sidecar.change.lora_commands import LoRACommands
from rlfleet_sidecar.change.steps import Steps
from rlfleet_sidecar.change.ttl import ChangeTTL
from rlfleet_sidecar.checkpoints.check import Checkpoints
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.lora.cache import LoRACache, Served
from rlfleet_sidecar.lora.registry import LoRACopy, Registry
from rlfleet_sidecar.lora.serving import LoRAServing
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.staging.prepare_job import PrepareJob, SupersededError
from rlfleet_sidecar.state.journal import Journal
from rlfleet_sidecar.vllm_client import EngineClient
from tests.contract.subject import Versions
from tests.fakes.worker import Worker

FIRST, SECOND = Versions().first, Versions().second
BOUND_S = 0.3
LONG_S = 600
WAITED_S = 30
"""For what takes the time that a hanging read is given to notice its end."""
LEAVES_A_THREAD = """
import asyncio, threading
from rlfleet_sidecar.timeouts import in_thread

async def main():
    async with asyncio.timeout(0.1):
        await in_thread(threading.Event().wait)

try:
    asyncio.run(main())
except TimeoutError:
    print("ended")
"""


@dataclass
class Mount:
    """Answers as long as it lives."""

    alive: threading.Event = field(default_factory=threading.Event)
    looks: int = 0


class Mounted(Checkpoints):
    """Checkpoints on such a mount."""

    def __init__(self, settings: SidecarSettings, mount: Mount) -> None:
        super().__init__(settings)
        self._mount = mount

    def demand_unchanged(self, version: str, files: Sequence[FileStamp]) -> None:
        self._mount.looks += 1
        self._mount.alive.wait()
        super().demand_unchanged(version, files)


class MountedCopies(LoRACache):
    """Adapters on such a mount."""

    def __init__(self, settings: SidecarSettings, checkpoints: Checkpoints, mount: Mount) -> None:
        super().__init__(settings, checkpoints)
        self._mount = mount

    def take(
        self,
        request: LoadAdapterRequest,
        work: PrepareJob,
        free: Callable[[int], int],
        served: Served = frozenset,
    ) -> LoRACopy:
        self._mount.looks += 1
        self._mount.alive.wait()
        return super().take(request, work, free, served)


@pytest.fixture
async def mount() -> AsyncIterator[Mount]:
    found = Mount()
    found.alive.set()
    yield found
    found.alive.set()


@dataclass(frozen=True)
class Sidecar:
    """What carries commands out."""

    executor: Executor
    lora: LoRACommands
    fencing: Fencing


@pytest.fixture
async def sidecar(
    fake: Worker, model: Path, weights: Path, tmp_path: Path, mount: Mount
) -> AsyncIterator[Sidecar]:
    """A sidecar without a cache, in the place of the worker's own; it serves the first version."""
    await fake.stop_sidecar()
    settings = SidecarSettings(
        model_name="fake",
        model_path=model,
        engine_url=fake.engine_url,
        weights_path=f"{weights}/{{version}}",
    )
    checkpoints, journal = Mounted(settings, mount), Journal(tmp_path)
    store = VersionStore(settings, checkpoints)
    copies = MountedCopies(settings, checkpoints, mount)
    async with EngineClient(settings.engine_url) as engine:
        adapters = LoRAServing("fake", engine, store, copies, Registry(tmp_path))
        steps = Steps(settings, engine, store, journal, adapters)
        leadership = ChangeTTL(journal)
        found = Executor(steps, store, journal, leadership)
        gate = await steps.look()
        assert gate is not None
        await steps.warm_up(gate)
        steps.observe(gate)
        for version in (FIRST, SECOND):
            await found.carry_out(PrepareRequest(operation="o", version=version))
            if version == FIRST:
                await found.carry_out(UpdateRequest(operation="o", version=version))
        lora = LoRACommands("fake", found, adapters, journal)
        yield Sidecar(found, lora, Fencing("f", "p", journal, found, lora, leadership))


@pytest.fixture
def executor(sidecar: Sidecar) -> Executor:
    return sidecar.executor


async def hanging(executor: Executor, mount: Mount) -> "asyncio.Task[WorkerReport]":
    """Begin a prepare that has all the time, and never comes to its first byte."""
    looks = mount.looks
    mount.alive.clear()
    request = PrepareRequest(operation="p", version=SECOND, timeout_s=LONG_S)
    call = asyncio.create_task(executor.carry_out(request))
    async with asyncio.timeout(WAITED_S):
        while mount.looks == looks:  # noqa: ASYNC110 - it is a thread's
            await asyncio.sleep(0.01)
    return call


async def refusal(executor: Executor, request: ReloadRequest | UpdateRequest) -> SidecarError:
    with pytest.raises(SidecarError, match="check its mount") as caught:
        async with asyncio.timeout(30):
            await executor.carry_out(request)
    assert caught.value.code is Code.CHECKPOINT_UNREADABLE
    return caught.value


async def test_files_that_do_not_answer_cause_no_pause(
    fake: Worker, executor: Executor, mount: Mount
) -> None:
    mount.alive.clear()

    timeouts = Timeouts(pause_s=BOUND_S)
    await refusal(executor, UpdateRequest(operation="p", version=SECOND, timeouts=timeouts))

    report = executor.report()
    assert (report.stage, report.proved, report.running) == (Stage.OPEN, FIRST, None)
    assert fake.engine.gate.is_open
    mount.alive.set()
    served = await executor.carry_out(UpdateRequest(operation="p", version=SECOND))
    assert served.proved == SECOND


async def test_a_change_that_still_checks_its_files_is_reported_as_under_way(
    sidecar: Sidecar, executor: Executor, mount: Mount
) -> None:
    looks = mount.looks
    mount.alive.clear()
    fence = Fence(fleet="f", pod="p", epoch=1, sequence=1)
    update = UpdateRequest(operation="p", version=SECOND, fence=fence)
    call = asyncio.create_task(sidecar.fencing.carry_out(update))
    async with asyncio.timeout(WAITED_S):
        while mount.looks == looks:  # noqa: ASYNC110 - it is a thread's
            await asyncio.sleep(0.01)

    told = sidecar.fencing.counting(executor.report())

    assert (told.stage, executor.report().running) == (Stage.OPEN, None)
    assert told.running == Running(verb=Verb.RELOAD, operation="p", version=SECOND)
    mount.alive.set()
    assert (await call).status == 200
    assert sidecar.fencing.counting(executor.report()).running is None


async def test_files_that_stop_answering_in_a_pause_do_not_prolong_it(
    fake: Worker, executor: Executor, mount: Mount
) -> None:
    await executor.carry_out(PauseRequest(operation="p", version=SECOND))
    looks = mount.looks
    mount.alive.clear()

    await refusal(executor, ReloadRequest(operation="p", version=SECOND, timeout_s=BOUND_S))

    report = executor.report()
    assert (report.stage, report.proved, mount.looks) == (Stage.OPEN, FIRST, looks + 1)
    assert (fake.engine.gate.is_open, fake.engine.paused) == (True, None)
    assert executor.flight.key is None


async def test_a_prepare_whose_files_do_not_answer_ends_by_its_time(
    executor: Executor, mount: Mount
) -> None:
    mount.alive.clear()

    with pytest.raises(SidecarError, match="the volume, or raise") as caught:
        async with asyncio.timeout(WAITED_S):
            await executor.carry_out(
                PrepareRequest(operation="p", version=SECOND, timeout_s=BOUND_S)
            )

    assert caught.value.code is Code.CHECKPOINT_UNREADABLE
    report = executor.report()
    assert (report.running, report.refusal) == (None, caught.value.problem())
    mount.alive.set()
    again = await executor.carry_out(PrepareRequest(operation="q", version=SECOND))
    assert again.prepared == SECOND


async def test_a_superseded_prepare_that_hangs_does_not_delay_the_next(
    executor: Executor, mount: Mount
) -> None:
    older = await hanging(executor, mount)
    newer = asyncio.create_task(
        executor.carry_out(PrepareRequest(operation="q", version=FIRST, timeout_s=LONG_S))
    )

    with pytest.raises(SupersededError, match="superseded by"):
        async with asyncio.timeout(WAITED_S):
            await older

    mount.alive.set()
    assert (await newer).prepared == FIRST


async def test_a_sidecar_that_ends_waits_for_no_prepare_that_hangs(
    executor: Executor, mount: Mount
) -> None:
    call = await hanging(executor, mount)

    await executor.preparation.stop()

    async with asyncio.timeout(WAITED_S):
        await asyncio.gather(call, return_exceptions=True)
    assert executor.report().running is None


async def test_an_adapter_whose_files_do_not_answer_ends_by_its_time(
    sidecar: Sidecar, mount: Mount, weights: Path
) -> None:
    path = str(weights / "adapters" / "step-1")
    request = LoadAdapterRequest(
        operation="a", name="poet", version="step-1", path=path, timeout_s=BOUND_S
    )
    mount.alive.clear()

    with pytest.raises(SidecarError, match="the volume, or raise") as caught:
        async with asyncio.timeout(WAITED_S):
            await sidecar.lora.carry_out(request)

    assert caught.value.code is Code.CHECKPOINT_UNREADABLE
    assert sidecar.executor.report().running is None
    mount.alive.set()
    again = request.model_copy(update={"timeout_s": LONG_S})
    assert (await sidecar.lora.carry_out(again)).adapters[0].is_loaded


async def test_a_process_ends_though_a_thread_of_it_waits_for_a_mount() -> None:
    command = (sys.executable, "-c", LEAVES_A_THREAD)
    process = await asyncio.create_subprocess_exec(
        *command, env={"PYTHONPATH": "sidecar"}, stdout=subprocess.PIPE
    )

    try:
        async with asyncio.timeout(60):
            told, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()

    assert (process.returncode, told) == (0, b"ended\n")
