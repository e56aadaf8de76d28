"""Workers that share a volume, and senders that follow a script."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from rlfleet_contract import paths
from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.worker.commands import PrepareRequest
from rlfleet_contract.worker.report import WorkerReport
from rlfleet_contract.worker.supply import Supply
from rlfleet_operator.core.sharing.lines import Member, supplies
from rlfleet_sidecar.checkpoints.safe_paths import stamp_of
from rlfleet_sidecar.sharing.pieces import edition_of, pieces_of
from tests.contract.conftest import TOKEN
from tests.contract.sharing.senders import ScriptedSender, scripted
from tests.fakes.worker import Worker

VERSION = "step-2"
PIECE, SAMPLE = 1024, 16
PATIENT_S = 150.0


class Fleet:
    """Workers that share a volume."""

    def __init__(self, workers: Sequence[Worker], weights: Path) -> None:
        self.workers = workers
        self.weights = weights

    def address(self, ordinal: int) -> str:
        return self.workers[ordinal].admin_url.rpartition("//")[2]

    def planned(self) -> list[Supply]:
        """Return the supplies that the operator plans."""
        known = [Member(str(n), self.address(n), ordinal=n) for n in range(len(self.workers))]
        return [supplies(known)[member.name] for member in known]

    async def ask(
        self, ordinal: int, supply: Supply | None, version: str = VERSION, operation: str = "r-1"
    ) -> httpx.Response:
        request = PrepareRequest(operation=operation, version=version, supply=supply, timeout_s=200)
        async with self.workers[ordinal].client() as client:
            return await client.post(
                paths.PREPARE_PATH, json=request.model_dump(exclude_none=True), timeout=240
            )

    async def prepare(
        self, ordinal: int, supply: Supply | None, version: str = VERSION
    ) -> WorkerReport:
        reply = await self.ask(ordinal, supply, version)
        assert reply.status_code == 200, reply.text
        return WorkerReport.model_validate_json(reply.content)

    async def get(self, ordinal: int, path: str, token: str = TOKEN) -> httpx.Response:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        async with httpx.AsyncClient(base_url=self.workers[ordinal].admin_url) as client:
            return await client.get(path, headers=headers, timeout=60)

    def path(self, version: str = VERSION, edition: str | None = None) -> str:
        return f"{paths.PIECES_PATH}/{version}/{edition or self.edition(version)}"

    def edition(self, version: str = VERSION) -> str:
        return edition_of(self.stamps(version))

    def stamps(self, version: str = VERSION) -> tuple[FileStamp, ...]:
        files = sorted((self.weights / version).glob("*.safetensors"))
        return tuple(stamp_of(file.name, file.stat()) for file in files)

    def pieces(self, version: str = VERSION) -> list[bytes]:
        return [
            (self.weights / version / piece.name).read_bytes()[piece.begin : piece.end]
            for piece in pieces_of(self.stamps(version), PIECE)
        ]

    def is_right(self, ordinal: int, version: str = VERSION) -> bool:
        """Return whether a worker's copy is what the store has."""
        copies = self.workers[ordinal]._scratch / "cache" / "versions" / version  # noqa: SLF001
        return all(
            (copies / stamp.name).read_bytes() == (self.weights / version / stamp.name).read_bytes()
            for stamp in self.stamps(version)
        )


@asynccontextmanager
async def running(
    count: int, scratch: Path, model: Path, weights: Path, **settings: Any
) -> AsyncIterator[Fleet]:
    ports: dict[str, Any] = {"engine_port": 0, "admin_port": 0, "poll_s": 0.5, "probe_tokens": 2}
    async with AsyncExitStack() as stack:
        workers = []
        for n in range(count):
            worker = Worker(
                "127.0.0.1", model, weights, TOKEN, scratch / f"pod-{n}", **ports, **settings
            )
            workers.append(await stack.enter_async_context(worker))
        yield Fleet(workers, weights)


class Senders:
    """Scripted workers that have the version."""

    def __init__(self, fleet: Fleet, stack: ExitStack) -> None:
        self._fleet, self._stack = fleet, stack

    def add(self, **fields: Any) -> ScriptedSender:
        known: dict[str, Any] = {"pieces": self._fleet.pieces(), "token": TOKEN}
        return self._stack.enter_context(scripted(ScriptedSender(**(known | fields))))


def from_store(caplog: pytest.LogCaptureFixture) -> list[int]:
    """Return how many bytes each worker read from the store, in the order of their ends."""
    found = [one for one in caplog.records if one.message == "Version received"]
    return [int(vars(record)["from_store"]) for record in found]


def behind(
    *senders: ScriptedSender, reader: ScriptedSender | None = None, succeeds: bool = False
) -> Any:
    readers = [reader or senders[-1]]
    return Supply(
        readers=tuple(one.address for one in readers),
        senders=tuple(one.address for one in senders),
        succeeds=succeeds,
    )
