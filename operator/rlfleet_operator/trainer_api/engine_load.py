"""Asks engines for vLLM's metrics, for the page: one look at a time, and none without a page."""

import asyncio
import time
from collections.abc import Mapping

import aiohttp

from rlfleet_contract import paths
from rlfleet_contract.single_flight import SingleFlight
from rlfleet_operator.core.model.worker_pod import Pod
from rlfleet_operator.kube.client import Json
from rlfleet_operator.workers.client import body_of, url_of
from rlfleet_view import load
from rlfleet_view.load import EngineLoad, LoadHistory

_REPLY_S = 3.0
_AT_ONCE = 8
_FORGOTTEN_S = 900.0
_OK = 200


class EngineLoads:
    """The load of the fleets that pages show."""

    def __init__(self) -> None:
        """Start without a connection."""
        self._histories: dict[str, tuple[LoadHistory, float]] = {}
        """By the fleet's UID, with the time of the last look."""
        self._looking = SingleFlight[str]()
        self._http: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.close()

    async def look(self, fleet: Json, pods: Mapping[str, Pod]) -> Json:
        """Return the load of a fleet, after another look at its engines if the last is old."""
        uid = fleet["metadata"]["uid"]
        return await self._looking.join(uid, lambda: self._look(uid, pods))

    async def _look(self, uid: str, pods: Mapping[str, Pod]) -> Json:
        now = time.time()
        kept = {u: h for u, h in self._histories.items() if 0 <= now - h[1] < _FORGOTTEN_S}
        history, _ = kept.get(uid, (LoadHistory(), now))
        self._histories = kept | {uid: (history, now)}
        if history.is_due(now):
            reachable = {n: p.answers_at for n, p in sorted(pods.items()) if p.answers_at}
            asked = list(reachable.items())[: load.MOST_WORKERS]
            limit = asyncio.Semaphore(_AT_ONCE)
            found = await asyncio.gather(*(self._asked(at, limit) for _, at in asked))
            history.add(now, dict(zip(dict(asked), found, strict=True)), len(pods))
        return history.as_json()

    async def _asked(self, address: str, limit: asyncio.Semaphore) -> EngineLoad | str:
        """Return an engine's load, or why there is none."""
        if self._http is None:
            jar = aiohttp.DummyCookieJar()
            self._http = aiohttp.ClientSession(cookie_jar=jar, trust_env=False)
        try:
            async with limit, asyncio.timeout(_REPLY_S):
                url = f"{url_of(address, paths.ENGINE_PORT)}/metrics"
                async with self._http.get(url, allow_redirects=False) as reply:
                    text = (await body_of(reply)).decode(errors="replace")
        except TimeoutError:
            return f"no answer within {_REPLY_S:g} s; see NetworkPolicies"
        except aiohttp.ClientError as error:
            return f"{type(error).__name__}: {error}"
        if reply.status != _OK:
            return f"status {reply.status}"
        return load.parsed(text) or "no series of vLLM in its metrics"
