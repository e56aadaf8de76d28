"""The HTTP server of the dashboard, on 127.0.0.1 alone.

A client that reaches it acts as the user. So each request must name this host (a page that was
bound to this address by DNS names another), carry the cookie that only the printed address gives,
and, if it changes something, come from this page.
"""

import hmac
import json
import secrets
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from rlfleet_kubectl.core import page_actions
from rlfleet_kubectl.dashboard import spec_changes
from rlfleet_kubectl.dashboard.board import Board
from rlfleet_kubectl.dashboard.engine_metrics import EngineMetrics
from rlfleet_kubectl.dashboard.spec_changes import ChangeRequest
from rlfleet_kubectl.errors import PluginError
from rlfleet_kubectl.kubectl import Kubectl
from rlfleet_view import web
from rlfleet_view.fleet import ObservedFleet, RawObject
from rlfleet_view.page import page_of

ADDRESS = "127.0.0.1"
_STREAMS = 32
"""How many streams there may be at once."""
_AT_MOST_EVERY_S = 0.2
"""The least time between two states that a stream shows."""
_SOCKET_S = 10.0
"""A client that takes nothing for so long is gone."""
_BODY_LIMIT = 64 * 1024
_DIGITS = 10
_JSON = "application/json"


class Dashboard(ThreadingHTTPServer):
    """Serves the page; one thread per connection."""

    daemon_threads = True

    def __init__(self, port: int, kubectl: Kubectl, board: Board, where: str) -> None:
        """Listen on ``port``, or with 0 on one that is free."""
        # First: where the port is taken, the base class closes the server at once.
        self.metrics = EngineMetrics(kubectl)
        super().__init__((ADDRESS, port), _Handler)
        self.kubectl, self.board, self.where = kubectl, board, where
        self.reasons = web.known_reasons()
        self.streams = threading.BoundedSemaphore(_STREAMS)
        self._token, self._cookie = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._tickets: set[str] = set()
        self.hosts = {f"{name}:{self.server_port}" for name in (ADDRESS, "localhost")}
        self.cookie_name = f"rlfleet-{self.server_port}"

    @property
    def url(self) -> str:
        """The address with the token, for the user."""
        return f"http://{ADDRESS}:{self.server_port}/?token={self._token}"

    def url_once(self) -> str:
        """Return an address that works once: a browser's command line is for all to see."""
        ticket = secrets.token_urlsafe(32)
        self._tickets.add(ticket)
        return f"http://{ADDRESS}:{self.server_port}/?token={ticket}"

    def cookie_for(self, token: str) -> str | None:
        """Return the header that lets a browser in; None if the token is wrong."""
        known = [one for one in self._tickets if _equal(one, token)]
        self._tickets.difference_update(known)
        if not known and not _equal(self._token, token):
            return None
        return f"{self.cookie_name}={self._cookie}; Path=/; HttpOnly; SameSite=Strict"

    def admits(self, header: str) -> bool:
        """Return whether a Cookie header lets in.

        It has the cookies of all other servers of this host, which may be of any form.
        """
        pairs = (one.strip().partition("=") for one in header.split(";"))
        return any(name == self.cookie_name and _equal(v, self._cookie) for name, _, v in pairs)

    def shown(self, fleet: ObservedFleet) -> RawObject:
        """Return a fleet with its buttons."""
        buttons = page_actions.actions(fleet, spec_changes.now())
        return {**page_of(fleet, self.reasons), "actions": buttons}

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing about a client that is gone; a defect of ours is printed."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    def server_close(self) -> None:
        """Stop, with the processes that it has started."""
        super().server_close()
        self.metrics.close()


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode(errors="surrogateescape"))


class _Handler(BaseHTTPRequestHandler):
    server: Dashboard
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "rlfleet", ""
    timeout = _SOCKET_S

    def do_GET(self) -> None:
        at = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(at.query).items()}
        if not self._is_for_us():
            return
        if at.path == "/" and "token" in query:
            self._let_in(query["token"])
        elif not self._is_let_in():
            return
        elif at.path == f"/{web.EVENTS}":
            self._stream()
        elif at.path == f"/{web.LOAD}":
            self._about(query, self.server.metrics.look)
        elif at.path == "/rights":
            self._about(query, self._rights)
        else:
            self._file(at.path.removeprefix("/"))

    def do_HEAD(self) -> None:
        # Of a file alone: an address works once, and a stream has no end.
        if self._is_for_us() and self._is_let_in():
            self._file(urlsplit(self.path).path.removeprefix("/"))

    def do_OPTIONS(self) -> None:
        self._not_allowed()

    def do_PUT(self) -> None:
        self._not_allowed()

    def do_PATCH(self) -> None:
        self._not_allowed()

    def do_DELETE(self) -> None:
        self._not_allowed()

    def do_POST(self) -> None:
        # One that is rejected may leave its body unread.
        self.close_connection = True
        if not (self._is_for_us() and self._is_let_in() and self._is_from_this_page()):
            return
        length = self.headers.get("Content-Length", "")
        # Other digits, such as a raised 2, are no number to int().
        is_number = length.isascii() and length.isdigit() and len(length) < _DIGITS
        if self.path != "/change" or not is_number or int(length) > _BODY_LIMIT:
            self._refuse(HTTPStatus.BAD_REQUEST, "POST /change with at most 64 KiB of JSON")
            return
        try:
            asked = ChangeRequest.of(_object(self.rfile.read(int(length))))
            said = spec_changes.carried_out(self.server.kubectl, asked)
        except PluginError as error:
            self._json({"error": str(error)}, HTTPStatus.CONFLICT)
        else:
            self._json(said)

    def _not_allowed(self) -> None:
        self.close_connection = True
        if self._is_for_us():
            why = "this method is not allowed; the page uses GET and POST"
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, why, {"Allow": "GET, HEAD, POST"})

    # --- callers -------------------------------------------------------------------------------

    def _is_for_us(self) -> bool:
        if self.headers.get("Host", "") in self.server.hosts:
            return True
        self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "wrong Host; open the printed address")
        return False

    def _is_let_in(self) -> bool:
        if self.server.admits(self.headers.get("Cookie", "")):
            return True
        self._refuse(HTTPStatus.FORBIDDEN, "no access; open the address that the command printed")
        return False

    def _is_from_this_page(self) -> bool:
        origin = self.headers.get("Origin", "").removeprefix("http://")
        is_json = self.headers.get_content_type() == _JSON
        if origin == self.headers.get("Host") and is_json:
            return True
        self._refuse(HTTPStatus.FORBIDDEN, "changes must come from this page, as JSON")
        return False

    def _let_in(self, token: str) -> None:
        cookie = self.server.cookie_for(token)
        if cookie is None:
            said = "wrong or used token; open the address that the command printed"
            self._refuse(HTTPStatus.FORBIDDEN, said)
            return
        # The token leaves the address bar.
        self._reply(
            HTTPStatus.SEE_OTHER, "text/plain", b"", {"Set-Cookie": cookie, "Location": "/"}
        )

    # --- answers --------------------------------------------------------------------------------

    def _stream(self) -> None:
        if not self.server.streams.acquire(blocking=False):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages are open; close some")
            return
        try:
            self.close_connection = True
            self._head(HTTPStatus.OK, {"Content-Type": "text/event-stream", "Connection": "close"})
            self._send_news()
        except OSError:
            # Gone, or too slow.
            return
        finally:
            self.server.streams.release()

    def _send_news(self) -> None:
        board = self.server.board
        news = board.since(-1, 0)
        fleets = [self.server.shown(one) for one in news.fleets]
        hello = {"now": time.time(), "where": self.server.where, "fleets": fleets}
        self.wfile.write(web.event("hello", hello))
        news = replace(news, fleets=(), gone=())
        while True:
            said = [web.event("fleet", self.server.shown(one)) for one in news.fleets]
            said += [web.event("gone", {"key": key}) for key in news.gone]
            if news.problem is not None:
                said.append(web.event("problem", {"message": news.problem}))
            self.wfile.write(b"".join(said) or web.HEARTBEAT)
            time.sleep(_AT_MOST_EVERY_S)
            news = board.since(news.count, web.HEARTBEAT_S)

    def _about(self, query: dict[str, str], answer: Callable[[ObservedFleet], RawObject]) -> None:
        fleet = self.server.board.get(f"{query.get('namespace')}/{query.get('name')}")
        if fleet is None:
            self._refuse(HTTPStatus.NOT_FOUND, "no such fleet")
        else:
            self._json(answer(fleet))

    def _rights(self, fleet: ObservedFleet) -> RawObject:
        return spec_changes.rights(self.server.kubectl, fleet)

    def _file(self, name: str) -> None:
        found = web.page_file(name)
        if found is None:
            self._refuse(HTTPStatus.NOT_FOUND, "no such page; open /")
        else:
            self._reply(HTTPStatus.OK, found.type, found.content)

    def _json(self, said: RawObject, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._reply(status, _JSON, json.dumps(said).encode())

    def _refuse(self, status: HTTPStatus, why: str, more: dict[str, str] | None = None) -> None:
        self._reply(status, "text/plain; charset=utf-8", f"{why}\n".encode(), more)

    def _reply(
        self, status: HTTPStatus, kind: str, body: bytes, more: dict[str, str] | None = None
    ) -> None:
        self._head(status, {"Content-Type": kind, "Content-Length": str(len(body))} | (more or {}))
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**web.HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing: the address has a token."""


def _object(body: bytes) -> RawObject:
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise PluginError("change is no JSON object; load the page again")
    return found
