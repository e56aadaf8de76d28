"""The dashboard's server on a port that is taken, and with clients that leave."""

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from rlfleet_kubectl.dashboard.board import Board
from rlfleet_kubectl.dashboard.server import ADDRESS, Dashboard
from rlfleet_kubectl.kubectl import Kubectl
from tests.unit.rlfleet_view.recordings import fleet


@pytest.fixture
def server() -> Iterator[Dashboard]:
    with Dashboard(0, Kubectl(), Board(), "here") as made:
        yield made


def test_a_port_that_is_taken_is_an_error_of_the_system() -> None:
    with socket.create_server((ADDRESS, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            Dashboard(port, Kubectl(), Board(), "here")


@pytest.mark.parametrize("gone", [BrokenPipeError(), ConnectionResetError(), TimeoutError()])
def test_nothing_is_printed_about_a_client_that_is_gone(
    server: Dashboard, capsys: pytest.CaptureFixture[str], gone: OSError
) -> None:
    try:
        raise gone
    except OSError:
        server.handle_error(None, (ADDRESS, 1))

    assert capsys.readouterr().err == ""


def test_a_defect_of_a_handler_is_printed(
    server: Dashboard, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        int("defect")
    except ValueError:
        server.handle_error(None, (ADDRESS, 1))

    assert "ValueError: invalid literal" in capsys.readouterr().err


Reply = tuple[int, http.client.HTTPMessage, bytes]


class Browser:
    """A client that was let in."""

    def __init__(self, server: Dashboard) -> None:
        self.port = server.server_port
        at = urlsplit(server.url)
        _, headers, _ = self.ask("GET", f"/?{at.query}")
        self.cookie = {"Cookie": headers["Set-Cookie"].partition(";")[0]}

    def ask(self, method: str, path: str, headers: dict[str, str] | None = None) -> Reply:
        """Return status, headers and body."""
        connection = http.client.HTTPConnection(ADDRESS, self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, headers=headers or {})
            with connection.getresponse() as reply:
                return reply.status, reply.headers, reply.read()


@pytest.fixture
def browser(server: Dashboard) -> Iterator[Browser]:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Browser(server)
    server.shutdown()
    thread.join()


def test_the_head_of_a_page_is_that_of_the_page(browser: Browser) -> None:
    got, asked, body = browser.ask("GET", "/", browser.cookie)
    status, head, nothing = browser.ask("HEAD", "/", browser.cookie)

    assert (got, status, nothing) == (200, 200, b"")
    assert head["Content-Length"] == asked["Content-Length"] == str(len(body))
    assert browser.ask("HEAD", "/")[0] == 403
    assert browser.ask("HEAD", "/events", browser.cookie)[0] == 404


def test_the_head_of_an_address_that_works_once_does_not_use_it_up(
    server: Dashboard, browser: Browser
) -> None:
    at = server.url_once().partition(str(server.server_port))[2]

    assert browser.ask("HEAD", at)[0] == 403
    assert browser.ask("GET", at)[0] == 303


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "PATCH", "DELETE"])
def test_another_method_is_not_allowed(browser: Browser, method: str) -> None:
    status, headers, body = browser.ask(method, "/", browser.cookie)

    assert (status, headers["Allow"]) == (405, "GET, HEAD, POST")
    assert body.startswith(b"this method is not allowed")


@pytest.mark.parametrize("length", ["\u00b2", "-1", "1e3", "9" * 5000])
def test_a_length_that_is_no_number_is_rejected(browser: Browser, length: str) -> None:
    mine = {"Origin": f"http://{ADDRESS}:{browser.port}", "Content-Type": "application/json"}
    asked = {**browser.cookie, **mine, "Content-Length": length}

    assert browser.ask("POST", "/change", asked)[0] == 400


def test_a_board_forgets_fleets_that_were_deleted_long_ago() -> None:
    board, found = Board(), fleet("synced")
    for number in range(1500):
        one = type(found)({**found.raw, "metadata": {**found.raw["metadata"], "name": str(number)}})
        board.put(one)
        board.remove(f"{one.namespace}/{number}")
    board.put(found)

    gone = board.since(0, 0).gone
    assert len(gone) == 1000
    assert gone[-1].endswith("/1499")
    assert board.since(0, 0).fleets == (found,)
