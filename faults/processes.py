"""Starts operator and sidecars as processes, forked from one that has imported their modules.

The imports take most of a second, too long for a run of a few seconds. The fork runs the same
code as ``python -m`` and can be killed like any process.
"""

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Mapping
from importlib import import_module, reload
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

_END_S = 20.0


def context() -> ForkServerContext:
    """Return the server that forks; it has imported what it is to run."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rlfleet_operator.__main__", "rlfleet_sidecar.__main__"])
    return context


class Forked:
    """One program that can be killed and started again."""

    def __init__(self, module: str, variables: Mapping[str, str], log: Path) -> None:
        """Run ``python -m MODULE`` with these variables and its output in a file."""
        self._words = (module, dict(variables), str(log))
        self._process: ForkServerProcess | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.is_alive()

    @property
    def pid(self) -> int:
        """The process's id."""
        return (self._process.pid or 0) if self._process else 0

    async def start(self) -> None:
        """Start it."""
        self._process = context().Process(target=run, args=self._words, daemon=True)
        # Waits for the server that forks, which takes a second the first time.
        await asyncio.to_thread(self._process.start)

    async def kill(self) -> None:
        """End it by SIGKILL."""
        if self._process is not None and self._process.is_alive():
            self._process.kill()
            await asyncio.to_thread(self._process.join, _END_S)

    async def suspend(self, seconds: float) -> None:
        """Have it run nothing for so long, as on a node that is busy or suspended."""
        if not self.is_alive:
            return
        os.kill(self.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            if self.is_alive:
                os.kill(self.pid, signal.SIGCONT)

    async def stop(self) -> None:
        """End it by SIGTERM, and by SIGKILL when that takes too long."""
        if self._process is not None and self._process.is_alive():
            self._process.terminate()
            await asyncio.to_thread(self._process.join, _END_S)
        await self.kill()


def run(module: str, variables: dict[str, str], log: str) -> None:
    """Be ``python -m MODULE``, in the fork."""
    threading.Thread(target=_end_with_campaign, daemon=True).start()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.environ.update(variables)  # noqa: TID251 - the fork's own, before its program reads it
    # The client reads KUBECONFIG when it is imported, which was before the fork.
    reload(sys.modules["kubernetes.aio.config.kube_config"])
    sys.argv = [module]
    sys.exit(import_module(f"{module}.__main__").main())


def _end_with_campaign() -> None:
    """Die when the campaign does, however that dies.

    Not by PR_SET_PDEATHSIG: the parent is the server that forks, which lives on for as long as
    anything that it forked.
    """
    campaign = multiprocessing.parent_process()
    if campaign is not None:
        campaign.join()
        os.kill(os.getpid(), signal.SIGKILL)
