"""The worker under test, fake or real, as the contract's callers see it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.report import WorkerReport


def client_of(url: object, **headers: str) -> httpx.AsyncClient:
    """Make a client; the default transport would load certificates for 20 ms."""
    transport = httpx.AsyncHTTPTransport(verify=False, trust_env=False)
    return httpx.AsyncClient(base_url=str(url), headers=headers, transport=transport, timeout=30)


@dataclass(frozen=True, slots=True)
class Versions:
    """Names of versions that the worker's volume holds, or does not."""

    first: str = "step-1"
    second: str = "step-2"
    absent: str = "step-404"
    incomplete: str = "step-unfinished"
    broken: str = "step-truncated"


@dataclass(frozen=True, slots=True)
class Subject:
    """A worker with its sidecar's and its engine's address."""

    admin: httpx.AsyncClient
    """Has the token."""
    engine: httpx.AsyncClient
    model_name: str
    versions: Versions
    weights: str = "/weights"
    """Where the worker's versions lie, as it sees them."""

    async def send(self, path: str, version: str, **fields: Any) -> httpx.Response:
        """Send a command; its operation is a new one unless it is given."""
        body = {"operation": uuid4().hex, "version": version} | fields
        return await self.admin.post(path, json=body)

    async def ok(self, path: str, version: str, **fields: Any) -> WorkerReport:
        """Send a command that must succeed."""
        reply = await self.send(path, version, **fields)
        assert reply.status_code == 200, reply.text
        return WorkerReport.model_validate_json(reply.content)

    async def refused(self, code: Code, path: str, version: str, **fields: Any) -> Problem:
        """Send a command that must be refused with this code and its status."""
        reply = await self.send(path, version, **fields)
        problem = Problem.model_validate_json(reply.content)
        assert (problem.code, reply.status_code) == (code, code.status), reply.text
        assert problem.version == version
        return problem

    async def report(self) -> WorkerReport:
        reply = await self.admin.get(paths.STATE_PATH)
        return WorkerReport.model_validate_json(reply.content)

    async def until(self, is_so: Callable[[WorkerReport], bool]) -> WorkerReport:
        """Wait until the worker's report is so."""
        async with asyncio.timeout(30):
            while not is_so(report := await self.report()):  # noqa: ASYNC110 - it is remote
                await asyncio.sleep(0.02)
        return report

    async def is_ready(self) -> bool:
        return (await self.admin.get(paths.READY_PATH)).status_code == 200

    async def serve(self, version: str) -> WorkerReport:
        """Bring the worker to a version, wherever it stands.

        A sidecar that acts on its own is Busy for a moment; a driver sends its command again.
        """
        await self.ok(paths.PREPARE_PATH, version)
        async with asyncio.timeout(30):
            while True:
                reply = await self.send(paths.UPDATE_WEIGHTS_PATH, version)
                if reply.status_code == 200:
                    return WorkerReport.model_validate_json(reply.content)
                assert Problem.model_validate_json(reply.content).code is Code.BUSY, reply.text
                await asyncio.sleep(0.05)

    async def complete(
        self, headers: Mapping[str, str] | None = None, **fields: Any
    ) -> httpx.Response:
        """Ask the engine for a completion, as a sampler does."""
        body = {"model": self.model_name, "prompt": [11, 12, 13], "temperature": 0}
        return await self.engine.post("/v1/completions", json=body | fields, headers=headers)

    async def chat(
        self,
        path: str = "/v1/chat/completions",
        headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> httpx.Response:
        """Ask for a few tokens of a conversation."""
        messages = [{"role": "user", "content": "one two"}]
        body = {"model": self.model_name, "messages": messages, "max_tokens": 3, "temperature": 0}
        sent = {name: value for name, value in (body | fields).items() if value is not None}
        return await self.engine.post(path, json=sent, headers=headers)

    async def continue_from(
        self, tokens: Sequence[int], sampling: Mapping[str, Any] | None = None, **fields: Any
    ) -> httpx.Response:
        """Ask for two tokens after these, as a renderer does."""
        params = {"max_tokens": 2, "temperature": 0, **(sampling or {})}
        body = {"token_ids": list(tokens), "sampling_params": params} | fields
        return await self.engine.post("/inference/v1/generate", json=body)

    async def generate(self, tokens: int) -> dict[str, Any]:
        """Request so many tokens on the route that returns which weights made them."""
        sampling = {"max_tokens": tokens, "ignore_eos": True, "temperature": 0}
        body = {"token_ids": [11, 12, 13], "sampling_params": sampling}
        reply = await self.engine.post("/inference/v1/generate", json=body)
        assert reply.status_code == 200, reply.text
        found = reply.json()["choices"][0]
        assert isinstance(found, dict)
        return found
