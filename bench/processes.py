"""Starts the operator and the hollow workers, each as a process of its own."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from dev import environment
from dev.kubernetes.apiserver import ControlPlane
from dev.steps import StepFailed

METRICS_PORT = 18081
_LINE_LIMIT = 2**22
_END_S = 60.0


def variables(**more: str) -> dict[str, str]:
    """Return an environment in which our packages are found, as in this process."""
    return environment.everything() | {"PYTHONPATH": os.pathsep.join(sys.path)} | more


@asynccontextmanager
async def operator(plane: ControlPlane, namespace: str, log: Path) -> AsyncIterator[Process]:
    """Run the operator for one namespace, with the settings that an installation has."""
    env = variables(
        KUBECONFIG=str(plane.kubeconfig),
        RLFLEET_WORKER_IMAGE="worker:bench",
        RLFLEET_METRICS_PORT=str(METRICS_PORT),
        RLFLEET_NAMESPACES=namespace,
    )
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rlfleet_operator", env=env, stdout=out, stderr=out
        )
    async with _living(process, log):
        yield process


class Workers:
    """The processes of hollow workers."""

    def __init__(self, processes: Sequence[Process]) -> None:
        self._processes = processes

    @property
    def pids(self) -> list[int]:
        """The processes' ids."""
        return [process.pid for process in self._processes]

    async def reports(self) -> list[dict[str, Any]]:
        """Return every worker's last proved version, and when it proved that."""
        reports = await asyncio.gather(*map(_reports, self._processes))
        return [one for share in reports for one in share]


async def _reports(process: Process) -> list[dict[str, Any]]:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the workers were started without pipes")
    process.stdin.write(b"\n")
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError("the hollow workers ended: see workers.log")
    reports: list[dict[str, Any]] = json.loads(line)
    return reports


@asynccontextmanager
async def workers(
    plane: ControlPlane, namespace: str, scratch: Path, *, lean: bool = False
) -> AsyncIterator[Workers]:
    """Run hollow workers for one namespace, in as many processes as there are cores.

    With ``lean`` their sidecars are simulated.
    """
    count = os.cpu_count() or 1
    async with AsyncExitStack() as stack:
        yield Workers(
            [
                await stack.enter_async_context(
                    _share(plane, namespace, scratch, place, count, lean=lean)
                )
                for place in range(count)
            ]
        )


@asynccontextmanager
async def _share(
    plane: ControlPlane, namespace: str, scratch: Path, place: int, count: int, *, lean: bool
) -> AsyncIterator[Process]:
    folder = scratch / str(place)
    folder.mkdir()
    log = folder / "workers.log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.hollow"),
            *(str(plane.kubeconfig), namespace, str(folder), f"{place}/{count}"),
            *(["--lean"] if lean else []),
            env=variables(),
            stdin=PIPE,
            stdout=PIPE,
            stderr=out,
            limit=_LINE_LIMIT,
        )
    async with _living(process, log):
        yield process


@asynccontextmanager
async def _living(process: Process, log: Path) -> AsyncIterator[None]:
    """End the process when left; StepFailed at once when it ends by itself."""
    user = asyncio.current_task()

    async def guard() -> None:
        await process.wait()
        if user is not None:
            user.cancel()

    guarding = asyncio.create_task(guard())
    try:
        yield
    except asyncio.CancelledError:
        if process.returncode is None:
            raise
        raise StepFailed(f"a process ended with {process.returncode}:\n{_end_of(log)}") from None
    finally:
        guarding.cancel()
        await _end(process)


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


async def _end(process: Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_END_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
