"""Sixteen real sidecars with slow links, beside the simulation of the same fleet."""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from math import prod
from pathlib import Path
from statistics import median

import httpx

from bench.fanout.fleet import Faults, Scenario, run
from bench.fanout.namespaces import Nodes, nodes, queue_s
from bench.fanout.peer import Costs
from bench.fanout.sidecar import PIECE_BYTES
from bench.processes import variables
from dev.steps import say
from rlfleet_contract import paths
from rlfleet_contract.worker.commands import PrepareRequest
from rlfleet_operator.core.sharing.lines import Member, supplies
from rlfleet_operator.core.sharing.supplied import address_of
from tests.fakes.checkpoints import BF16_BYTES, CONFIG, write_file
from tests.fakes.file_server import FileServer, serving

WORKERS = 16
BITS_PER_S = 50e6
_SHAPES = {"model.layers.0.mlp.up_proj.weight": (32 * 1024, 1024)}
SIZE = sum(prod(shape) * BF16_BYTES for shape in _SHAPES.values())
_TOKEN = "calibration"  # noqa: S105 - of servers of this run
_SEEDS = 5
_MOST_S = 60.0
RUNS: Mapping[str, Faults] = {
    "no fault": Faults(),
    "no fault, again": Faults(),
    "two lying": Faults(lying=frozenset({5, 10})),
    "two dead": Faults(dies_at={6: 3.0, 12: 6.0}),
}


@dataclass(frozen=True, slots=True)
class Compared:
    """One run: when each worker without a fault had everything, and when it should have."""

    name: str
    real_s: Sequence[float]
    simulated_s: Sequence[float]
    real_copies: float
    simulated_copies: float

    @property
    def errors(self) -> list[float]:
        """Return by what share the simulation is wrong, for each worker."""
        return [abs(b - a) / a for a, b in zip(self.real_s, self.simulated_s, strict=True)]


def calibrated(names: Sequence[str] = tuple(RUNS)) -> list[Compared]:
    """Run the real fleet, and simulate it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        nodes(WORKERS, BITS_PER_S) as fleet,
    ):
        root = Path(folder)
        for number, _ in enumerate(names):
            _write(root / "store" / f"step-{number}", number)
        with serving(root / "store", fleet.outside) as store:
            return asyncio.run(_measured(names, root, fleet, store))


def simulated(faults: Faults, link: float) -> list[tuple[dict[int, float], float]]:
    """Return when each worker has everything, and the copies, by seeds."""
    scenario = Scenario(
        workers=WORKERS,
        nbytes=SIZE,
        piece_bytes=PIECE_BYTES,
        link=link,
        store=1e9,
        faults=faults,
        starts_within_s=0.1,
        costs=Costs(request_s=0.01 + queue_s(BITS_PER_S), piece_s=0.03),
    )
    found = [run(replace(scenario, seed=seed)) for seed in range(_SEEDS)]
    return [(dict(one.ended_s), one.copies) for one in found]


async def _measured(
    names: Sequence[str], root: Path, fleet: Nodes, store: FileServer
) -> list[Compared]:
    found = []
    async with _sidecars(root, fleet, store) as client:
        for number, name in enumerate(names):
            before = store.sent
            real = await _prepared(client, root, fleet, f"step-{number}", RUNS[name])
            copies = (store.sent - before) / SIZE
            found.append(_compared(name, real, copies))
            one = found[-1]
            say(
                f"{name}: real {max(one.real_s):.1f} s, simulated {max(one.simulated_s):.1f} s,"
                f" error {median(one.errors):.1%}, at most {max(one.errors):.1%}"
            )
    return found


def _compared(name: str, real: Mapping[int, float], copies: float) -> Compared:
    # A busy machine makes all links slower than asked for: the reader shows by how much.
    runs = simulated(RUNS[name], SIZE / real[0])
    return Compared(
        name,
        [real[n] for n in sorted(real)],
        [median(ended[n] for ended, _ in runs) for n in sorted(real)],
        copies,
        median(one for _, one in runs),
    )


async def _prepared(
    client: httpx.AsyncClient, root: Path, fleet: Nodes, version: str, faults: Faults
) -> dict[int, float]:
    """Let all prepare the version at once; returns when those without a fault had it."""
    for n in faults.lying:
        (root / str(n) / "lies").touch()
    begun, clock = time.time(), asyncio.get_running_loop()
    for n, moment in faults.dies_at.items():
        clock.call_later(moment, fleet.cut, n)
    calls = [asyncio.create_task(one) for one in _calls(client, fleet, version)]
    wanted = {*range(WORKERS)} - faults.faulty
    ended: dict[int, float] = {}
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_MOST_S):
                while not ended.keys() >= wanted:
                    await asyncio.sleep(0.2)
                    ended = _received(root, version)
    finally:
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        for n in faults.faulty:
            fleet.mend(n)
            (root / str(n) / "lies").unlink(missing_ok=True)
    return {n: ended[n] - begun if n in ended else _MOST_S for n in wanted}


def _calls(
    client: httpx.AsyncClient, fleet: Nodes, version: str
) -> Iterator[Coroutine[None, None, httpx.Response]]:
    members = [
        Member(f"w-{n}", address_of(fleet.address(n), paths.ADMIN_PORT), ordinal=n)
        for n in range(WORKERS)
    ]
    plan = supplies(members)
    for n, member in enumerate(members):
        request = PrepareRequest(
            operation=version, version=version, timeout_s=200, supply=plan[member.name]
        )
        url = f"http://{fleet.address(n)}:{paths.ADMIN_PORT}{paths.PREPARE_PATH}"
        yield client.post(url, json=request.model_dump(mode="json", exclude_none=True))


def _received(root: Path, version: str) -> dict[int, float]:
    """Return when workers wrote that they had received a version."""
    found = {}
    for n in range(WORKERS):
        for line in (root / str(n) / "log").read_text().splitlines():
            with suppress(ValueError):
                told = json.loads(line)
                if told.get("message") == "Version received" and told.get("version") == version:
                    found[n] = datetime.fromisoformat(told["time"]).timestamp()
    return found


def _write(folder: Path, seed: int) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    write_file(folder / "model.safetensors", _SHAPES, seed)
    (folder / "STABLE").touch()


@asynccontextmanager
async def _sidecars(
    root: Path, fleet: Nodes, store: FileServer
) -> AsyncIterator[httpx.AsyncClient]:
    _write(root / "model", 99)
    (root / "token").write_text(_TOKEN)
    headers = {"authorization": f"Bearer {_TOKEN}"}
    async with AsyncExitStack() as stack:
        client = httpx.AsyncClient(headers=headers, timeout=240, trust_env=False)
        await stack.enter_async_context(client)
        for n in range(WORKERS):
            await stack.enter_async_context(_sidecar(root, fleet, store, n))
        async with asyncio.timeout(180):
            for n in range(WORKERS):
                await _until_alive(client, fleet.address(n))
        yield client


@asynccontextmanager
async def _sidecar(root: Path, fleet: Nodes, store: FileServer, n: int) -> AsyncIterator[None]:
    own = root / str(n)
    own.mkdir()
    settings = {
        "MODEL_NAME": "fake",
        "MODEL_PATH": str(root / "model"),
        "WEIGHTS_SOURCE": f"{store.url}/{{version}}",
        "TOKEN_FILE": str(root / "token"),
        "CACHE_SPARE": "0",
        "ENGINE_URL": f"http://{fleet.address(n)}:8000",
        "HOST": fleet.address(n),
        "STATE_DIR": str(own / "state"),
        "CACHE_DIR": str(own / "cache"),
    }
    env = variables(**{f"RLFLEET_{name}": value for name, value in settings.items()})
    command = (*fleet.inside(n), sys.executable, "-m", "bench.fanout.sidecar", str(own / "lies"))
    with (own / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, env=env, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def _until_alive(client: httpx.AsyncClient, host: str) -> None:
    while True:
        with suppress(httpx.TransportError):
            await client.get(f"http://{host}:{paths.ADMIN_PORT}{paths.LIVE_PATH}")
            return
        await asyncio.sleep(0.2)
