"""Simulated workers for fleets too large for real sidecars on one machine.

Thousands share a process. Real are their sockets (an address and port 8090 for each), the token,
the messages, the fence and the watch. A command's effect is the operator's own simulation of a
worker: no engine, no file, no journal. A change takes CHANGE_S, a prepare PREPARE_S.

The node writes on pods what a kubelet would, once each time that something changes.
"""

import asyncio
import base64
import contextlib
import hashlib
import time
from collections.abc import Callable, Mapping
from itertools import count
from types import TracebackType
from typing import Any, Self

from aiohttp import ClientConnectionResetError, web

from rlfleet_contract import paths
from rlfleet_contract.worker.commands import (
    WEIGHTS_COMMANDS,
    Command,
    PrepareRequest,
    UpdateRequest,
)
from rlfleet_contract.worker.fence import Place
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Running, Stage, WorkerReport
from rlfleet_operator.core.model.actions import Prepare, Update
from rlfleet_operator.core.model.world import FLEET_LABEL, Worker
from rlfleet_operator.core.simulation.model_fleet import booted
from rlfleet_operator.core.simulation.model_worker import after_weights
from rlfleet_operator.errors import OperatorError
from rlfleet_operator.kube.client import Json
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.http.watch import GAP_S
from rlfleet_sidecar.state.fence_rules import SeenCommands, StoredAnswer, judge_fence
from rlfleet_sidecar.state.news import News
from tests.hollow import Hollow, HollowNode

CHANGE_S, PREPARE_S = 0.25, 0.25
_WRITES_AT_ONCE = 32
_COMMANDS: Mapping[str, type[Command]] = {kind.PATH: kind for kind in WEIGHTS_COMMANDS}


class LeanWorker:
    """One simulated sidecar with its engine."""

    def __init__(self, address: str, *_: object, admin_port: int, **__: object) -> None:
        """Take the place of tests.fakes.worker.Worker, without its files."""
        self.address, self._port = address, admin_port
        self.stir = asyncio.Event()
        """Set when the kubelet may have something to write."""
        self._token = ""
        self._serials = count(1)
        report = booted(address).model_copy(update={"serial": 0})
        self._worker = Worker(address, 0, report=report, reachable=True)
        self._seen = SeenCommands()
        self._news = News()
        self._server: asyncio.Server | None = None
        self._http = web.Server(self._answer)

    def give_token(self, token: str) -> None:
        """Set the admin token."""
        self._token = token

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._http, self.address, self._port)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        await self._http.shutdown(0)

    @property
    def report(self) -> WorkerReport:
        """The report as of the last change."""
        if self._worker.report is None:
            raise RuntimeError("a simulated worker always has a report")
        return self._worker.report

    @property
    def is_ready(self) -> bool:
        """Whether the sidecar's /ready would be 200."""
        return self.report.proved is not None and self.report.stage is not Stage.DOUBT

    def _become(self, **changes: object) -> None:
        known = self.report
        found = known.model_copy(update={**changes, "serial": next(self._serials)})
        self._worker = Worker(self.address, 0, report=found, reachable=True)
        self.stir.set()
        self._news.announce()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {self._token}":
            return _refused(SidecarError(Code.UNAUTHORIZED, "wrong token"))
        try:
            if request.path == paths.STATE_PATH:
                return self._state(request)
            if request.path == paths.WATCH_PATH:
                return await self._watch(request)
            kind = _COMMANDS.get(request.path)
            if kind is not None:
                return await self._command(kind.model_validate_json(await request.read()))
        except SidecarError as error:
            return _refused(error)
        return web.Response(status=404)

    def _state(self, request: web.BaseRequest) -> web.Response:
        epoch, over = (request.headers.get(h) for h in (paths.EPOCH_HEADER, paths.OVER_HEADER))
        seen = self._seen if epoch is None else self._seen.at(int(epoch))
        self._see(seen if over is None else seen.ending(Place.parse(over)))
        # An equal serial would count as the same answer, which tells no news.
        told = self.report.model_copy(update={"serial": next(self._serials)})
        return _json(told.model_dump_json())

    def _see(self, seen: SeenCommands) -> None:
        if seen.epoch != self._seen.epoch:
            self._become(epoch=seen.epoch)
        self._seen = seen

    async def _watch(self, request: web.BaseRequest) -> web.StreamResponse:
        """Write lines as rlfleet_sidecar.http.watch does, but only when something happens."""
        reply = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await reply.prepare(request)
        known: WorkerReport | None = None
        # The operator ends a watch by closing the connection.
        ended = contextlib.suppress(ClientConnectionResetError)
        with ended, self._news.listening() as announced:
            while True:
                announced.clear()
                is_news = self.report is not known
                known = self.report
                await reply.write(known.model_dump_json().encode() + b"\n" if is_news else b"\n")
                await asyncio.sleep(GAP_S if is_news else 0)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(paths.SIGN_S):
                        await announced.wait()
        return reply

    async def _command(self, command: Command) -> web.Response:
        fence = command.fence
        if fence is None:
            raise SidecarError(Code.INVALID_REQUEST, "a simulated worker takes fenced commands")
        digest = hashlib.sha256(command.model_dump_json().encode()).hexdigest()
        if answer := judge_fence(self._seen, fence, digest):
            return _json(answer.body, answer.status)
        self._see(self._seen.receiving(fence, digest))
        await self._carry_out(command)
        answer = StoredAnswer(status=200, body=self.report.model_dump_json())
        self._seen = self._seen.answering(fence, answer)
        return _json(answer.body)

    async def _carry_out(self, command: Command) -> None:
        about = self.address, command.version, command.operation
        action: Prepare | Update
        match command:
            case PrepareRequest():
                action, takes_s = Prepare(*about), PREPARE_S
            case UpdateRequest():
                action, takes_s = Update(*about, command.expected, command.through), CHANGE_S
            case _:
                raise SidecarError(Code.INVALID_REQUEST, f"not simulated: {command.VERB}")
        running = Running(verb=command.VERB, operation=command.operation, version=command.version)
        is_change = isinstance(action, Update)
        self._become(running=running, paused_s=0.0 if is_change else self.report.paused_s)
        await asyncio.sleep(takes_s)
        after = after_weights(self._worker, action, {}).report or self.report
        changes = {name: getattr(after, name) for name in after.model_fields_set}
        change = after.last_change
        if change is not None and change is not self.report.last_change:
            changes["last_change"] = change.model_copy(update={"finished_at": time.time()})
        self._become(**{**changes, "running": None, "paused_s": None})


class LeanNode(HollowNode):
    """A kubelet of simulated workers: it looks at a pod when pod or worker have changed."""

    def __init__(self, *given: Any, make: Callable[..., Any] = LeanWorker, **also: Any) -> None:
        super().__init__(*given, make=make, **also)
        self._tokens: dict[str, asyncio.Task[str]] = {}
        self._writes = asyncio.Semaphore(_WRITES_AT_ONCE)

    def _seen(self, kind: str, raw: Json) -> None:
        super()._seen(kind, raw)
        # A bookmark has no name.
        if pod := self.pods.get(raw["metadata"].get("name", "")):
            _lean(pod).stir.set()

    async def _run(self, pod: Hollow) -> None:
        worker, fleet = _lean(pod), pod.raw["metadata"]["labels"][FLEET_LABEL]
        if fleet not in self._tokens:
            self._tokens[fleet] = asyncio.ensure_future(self._token(pod.namespace, fleet))
        worker.give_token(await self._tokens[fleet])
        await worker.__aenter__()
        is_written = False
        while self.pods.get(pod.name) is pod:
            worker.stir.clear()
            is_due = not is_written or worker.is_ready != pod.is_ready or self._gate_changed(pod)
            if is_due:
                pod.is_ready = worker.is_ready
                async with self._writes:
                    await self._write(pod)
                is_written = True
                continue
            await worker.stir.wait()

    async def _token(self, namespace: str, fleet: str) -> str:
        path = f"/api/v1/namespaces/{namespace}/secrets/{fleet}-admin"
        while True:
            try:
                return base64.b64decode((await self._kube.get(path))["data"]["token"]).decode()
            except OperatorError:
                await asyncio.sleep(0.1)


def _lean(pod: Hollow) -> LeanWorker:
    worker: Any = pod.worker
    assert isinstance(worker, LeanWorker)  # noqa: S101 - make() made it
    return worker


def _json(body: str, status: int = 200) -> web.Response:
    return web.Response(text=body, status=status, content_type="application/json")


def _refused(error: SidecarError) -> web.Response:
    return _json(error.problem().model_dump_json(), error.code.status)
