"""The operator and the hollow workers, each as a process beside the benchmark's own."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dev import cache, environment
from dev.apiserver import ControlPlane
from dev.steps import StepFailed

METRICS_PORT = 18081
_LINE_LIMIT = 2**22
_END_S = 60.0


def variables(**more: str) -> dict[str, str]:
    """Return an environment in which our packages are found."""
    root = cache.REPOSITORY
    path = os.pathsep.join(map(str, (root / "operator", root / "sidecar", root)))
    return environment.everything() | {"PYTHONPATH": path} | more


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
    """The process of hollow workers."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    async def reports(self) -> list[dict[str, Any]]:
        """Ask every worker what it proved last, and when."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the workers were started without pipes")
        self._process.stdin.write(b"\n")
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the hollow workers ended: see workers.log")
        told: list[dict[str, Any]] = json.loads(line)
        return told


@asynccontextmanager
async def workers(plane: ControlPlane, namespace: str, scratch: Path) -> AsyncIterator[Workers]:
    """Run hollow workers for one namespace."""
    log = scratch / "workers.log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.hollow"),
            *(str(plane.kubeconfig), namespace, str(scratch)),
            env=variables(),
            stdin=PIPE,
            stdout=PIPE,
            stderr=out,
            limit=_LINE_LIMIT,
        )
    async with _living(process, log):
        yield Workers(process)


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
