"""The ports of a fake worker stay its own while a server of it is down."""

import asyncio
import socket
from pathlib import Path

import pytest

from tests.fakes.checkpoints import write_model
from tests.fakes.worker import Worker


async def test_no_other_process_gets_the_port_of_a_sidecar_that_is_down(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", seed=0)
    worker = Worker(
        "127.0.0.1", model, tmp_path, "token", tmp_path / "pod", engine_port=0, admin_port=0
    )
    async with worker:
        port = int(worker.admin_url.rpartition(":")[2])
        await worker.stop_sidecar()

        with socket.socket() as other, pytest.raises(OSError, match="already in use"):
            other.bind(("127.0.0.1", port))

        await worker.start_sidecar()
        assert worker.admin_url.endswith(f":{port}")
        await worker.report()
    await asyncio.to_thread(socket.create_server(("127.0.0.1", port)).close)
