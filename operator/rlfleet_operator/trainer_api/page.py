"""The page of one fleet, for people: /fleets/NAMESPACE/NAME/, behind the fleet's token.

It only reads, and costs nothing while no page is open: a stream waits for the fleet's news, and
engines are asked for metrics only when a page asks. A stream is bounded in number, time and
patience, so that pages cannot keep trainers from being served.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from aiohttp import web

from rlfleet_operator.core.trainer.models import Fault, Refusal
from rlfleet_operator.errors import OperatorError
from rlfleet_operator.kube.client import Json
from rlfleet_operator.kube.pod_cache import FleetKey
from rlfleet_operator.reconcile.supervisor import Supervisor
from rlfleet_operator.trainer_api.engine_load import EngineLoads
from rlfleet_view import web as page
from rlfleet_view.fleet import ObservedFleet
from rlfleet_view.page import page_of

STREAMS, STREAMS_OF_FLEET = 64, 16
"""How many streams there may be at once."""
_AT_MOST_EVERY_S = 0.25
_TAKES_S = 10.0
"""A client that takes nothing for so long is dropped."""
_LASTS_S = 3600.0
"""After so long a page has to connect again."""
READ_ONLY = (
    "Read-only: the operator never changes a spec. To change it: kubectl rlf dashboard -n {}"
)
PREFIX = "page."
"""Begins the names of the page's routes."""

Check = Callable[[FleetKey, str | None], Awaitable[object]]
"""Raises Refusal if a header no longer has the fleet's token."""


class FleetPage:
    """Serves the page's files, its stream of events, and the load of engines."""

    def __init__(self, fleets: Supervisor, check: Check) -> None:
        """Show these fleets; ``check`` is asked again while a stream lasts."""
        self._fleets, self._check = fleets, check
        self._reasons = page.known_reasons()
        self._loads = EngineLoads()
        self._streams = Counter[FleetKey]()

    def add_routes(self, router: web.UrlDispatcher, base: str) -> None:
        """Add the page's routes below ``base``."""
        router.add_get(base, _with_slash, name=f"{PREFIX}redirect")
        # HEAD would hold a stream whose events no client reads.
        events = f"{base}/{page.EVENTS}"
        router.add_get(events, self._events, name=f"{PREFIX}events", allow_head=False)
        router.add_get(f"{base}/{page.LOAD}", self._load, name=f"{PREFIX}load")
        names = "|".join(sorted(page.NAMES)).replace(".", r"\.")
        router.add_get(f"{base}/{{file:(?:{names})?}}", self._file, name=f"{PREFIX}file")

    async def close(self) -> None:
        """Close the connections to engines."""
        await self._loads.close()

    async def _file(self, request: web.Request) -> web.Response:
        found = page.page_file(request.match_info["file"])
        if found is None:
            raise Refusal(Fault.NOT_FOUND, "no such page; open /fleets/NAMESPACE/NAME/")
        headers = {**page.HEADERS, "Content-Type": found.type}
        return web.Response(body=found.content, headers=headers)

    async def _load(self, request: web.Request) -> web.Response:
        key = _key(request)
        said = await self._loads.look(self._known(key), self._fleets.pods_of(key))
        return web.json_response(said, headers=page.HEADERS)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        key = _key(request)
        if self._streams.total() >= STREAMS or self._streams[key] >= STREAMS_OF_FLEET:
            raise Refusal(Fault.UNAVAILABLE, "too many pages are open; close some")
        self._streams[key] += 1
        try:
            return await self._stream(request, key)
        finally:
            self._streams[key] -= 1

    async def _stream(self, request: web.Request, key: FleetKey) -> web.StreamResponse:
        headers = {**page.HEADERS, "Content-Type": "text/event-stream"}
        response = web.StreamResponse(headers=headers)
        # Whatever raises afterwards would write a second reply into the first.
        shown = self._known(key)
        await response.prepare(request)
        ends = time.monotonic() + _LASTS_S
        authorization = request.headers.get("Authorization")
        said = self._hello(key, shown)
        while time.monotonic() < ends:
            try:
                async with asyncio.timeout(_TAKES_S):
                    await response.write(said)
            except TimeoutError:
                if request.transport is not None:
                    request.transport.abort()
                break
            await asyncio.sleep(_AT_MOST_EVERY_S)
            if self._fleets.known(key) is shown:
                await self._fleets.news(key, page.HEARTBEAT_S)
            raw = self._fleets.known(key)
            if raw is None:
                await response.write(page.event("gone", {"key": "/".join(key)}))
                break
            try:
                await self._check(key, authorization)
            except (Refusal, OperatorError):
                break  # The browser comes again.
            said = page.HEARTBEAT if raw is shown else page.event("fleet", self._shown(raw))
            shown = raw
        return response

    def _hello(self, key: FleetKey, raw: Json) -> bytes:
        said = {
            "now": time.time(),
            "where": "fleet API of the operator",
            "readOnly": READ_ONLY.format(key[0]),
            "fleets": [self._shown(raw)],
        }
        return page.event("hello", said)

    def _shown(self, raw: Json) -> Json:
        return page_of(ObservedFleet(raw), self._reasons)

    def _known(self, key: FleetKey) -> Json:
        raw = self._fleets.known(key)
        if raw is None:
            raise Refusal(Fault.NOT_FOUND, f"no fleet {key[1]} in namespace {key[0]}; create it")
        return raw


def _key(request: web.Request) -> FleetKey:
    return request.match_info["namespace"], request.match_info["name"]


async def _with_slash(request: web.Request) -> web.Response:
    # Only the name: a proxy in front may have another path.
    location = f"{request.match_info['name']}/"
    return web.Response(status=308, headers={**page.HEADERS, "Location": location})
