"""Which clients the dashboard's server admits, by real HTTP; no cluster is behind it."""

import threading
from collections.abc import Iterator

import httpx
import pytest

from rlfleet_kubectl.dashboard.board import Board
from rlfleet_kubectl.dashboard.server import Dashboard
from rlfleet_kubectl.kubectl import Kubectl
from tests.unit.rlfleet_view.recordings import fleet

KEY = {"namespace": "rl", "name": "qwen"}


@pytest.fixture
def board() -> Board:
    return Board()


@pytest.fixture
def server(board: Board) -> Iterator[Dashboard]:
    with Dashboard(0, Kubectl(), board, "test · rl") as made:
        serving = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        yield made
        made.shutdown()
        serving.join()


@pytest.fixture
def stranger(server: Dashboard) -> Iterator[httpx.Client]:
    """A client of this machine without the cookie."""
    base = f"http://127.0.0.1:{server.server_port}"
    with httpx.Client(base_url=base, trust_env=False, timeout=30) as client:
        yield client


@pytest.fixture
def user(server: Dashboard, stranger: httpx.Client) -> httpx.Client:
    """The same, once it opened the printed address."""
    assert stranger.get(server.url).status_code == 303
    return stranger


@pytest.mark.parametrize("path", ["/", "/main.js", "/events", "/load", "/rights", "/?token=x"])
def test_nothing_is_shown_without_the_token(stranger: httpx.Client, path: str) -> None:
    assert stranger.get(path).status_code == 403


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_lack(
    server: Dashboard, stranger: httpx.Client
) -> None:
    reply = stranger.get(server.url)

    assert reply.headers["location"] == "/"
    assert reply.headers["set-cookie"].endswith("; Path=/; HttpOnly; SameSite=Strict")
    assert server.url.partition("token=")[2] not in reply.headers["set-cookie"]
    assert stranger.get("/").status_code == 200


def test_the_address_that_a_browser_is_started_with_works_once(
    server: Dashboard, stranger: httpx.Client
) -> None:
    once = server.url_once()

    assert [stranger.get(once).status_code for _ in range(2)] == [303, 403]


@pytest.mark.parametrize(
    "other", ['theme={"dark": true}', "a[0]=1", "no-value", "path=/x", "a=b c"]
)
def test_cookies_of_other_servers_of_this_machine_lock_no_user_out(
    server: Dashboard, user: httpx.Client, other: str
) -> None:
    own = f"{server.cookie_name}={user.cookies[server.cookie_name]}"

    for header in (f"{other}; {own}", f"{own}; {other}"):
        assert user.get("/", headers={"Cookie": header}).status_code == 200, header


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", ""])
def test_a_name_that_was_bound_to_this_address_gets_nothing(user: httpx.Client, host: str) -> None:
    assert user.get("/", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize(
    ("origin", "kind"),
    [
        ("http://evil.example", "application/json"),
        ("http://127.0.0.1:1", "application/json"),
        ("null", "application/json"),
        ("", "application/json"),
        ("own", "text/plain"),
    ],
)
def test_only_this_page_may_change_something(
    server: Dashboard, user: httpx.Client, origin: str, kind: str
) -> None:
    own = f"http://127.0.0.1:{server.server_port}"
    headers = {"Origin": own if origin == "own" else origin, "Content-Type": kind}

    said = user.post("/change", headers=headers, content=b"{}")
    assert (said.status_code, said.text) == (403, "changes must come from this page, as JSON\n")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[", "no JSON object"),
        (b"{}", "change not understood"),
        (
            b'{"key": "--all/x", "action": "pause", "fields": {}, "dryRun": true}',
            "'--all/x' names no fleet",
        ),
        (
            b'{"key": "rl/-A", "action": "pause", "fields": {}, "dryRun": true}',
            "'rl/-A' names no fleet",
        ),
    ],
)
def test_a_change_that_is_not_understood_reaches_no_cluster(
    server: Dashboard, user: httpx.Client, body: bytes, message: str
) -> None:
    own = f"http://127.0.0.1:{server.server_port}"
    headers = {"Origin": own, "Content-Type": "application/json"}

    said = user.post("/change", headers=headers, content=body)
    assert said.status_code == 409
    assert message in said.json()["error"]


def test_every_answer_forbids_frames_and_caches(user: httpx.Client) -> None:
    for path in ("/", "/page.css", "/missing", "/load?namespace=rl&name=none"):
        headers = user.get(path).headers
        assert "frame-ancestors 'none'" in headers["content-security-policy"], path
        assert headers["cache-control"] == "no-store", path


def test_a_stream_begins_with_every_fleet_and_continues_with_news(
    user: httpx.Client, board: Board
) -> None:
    board.put(fleet("synced"))
    with user.stream("GET", "/events") as stream:
        lines = stream.iter_lines()
        hello = [next(lines), next(lines)]
        board.put(fleet("stalled"))
        kinds = [line for line in _until(lines, '"state":"Stalled"') if line.startswith("event")]
        board.remove("rl/qwen")
        gone = list(_until(lines, '"key"'))[-2:]
        board.report("fleets cannot be read: forbidden")
        problem = list(_until(lines, "forbidden"))[-2:]

    assert hello[0] == "event: hello"
    assert '"key":"rl/qwen"' in hello[1]
    assert '"state":"Synced"' in hello[1]
    assert kinds[-1] == "event: fleet"
    assert gone == ["event: gone", 'data: {"key":"rl/qwen"}']
    assert problem[0] == "event: problem"


def _until(lines: Iterator[str], text: str) -> Iterator[str]:
    for line in lines:
        yield line
        if text in line:
            return


def test_a_slow_stream_gets_the_newest_state_and_no_queue(board: Board) -> None:
    first = board.since(-1, 0)
    for name in ("synced", "canary-hold", "stalled"):
        board.put(fleet(name))

    news = board.since(first.count, 0)
    assert [one.raw for one in news.fleets] == [fleet("stalled").raw]
    assert board.since(news.count, 0).fleets == ()


def test_a_list_removes_what_was_deleted_while_nothing_watched(board: Board) -> None:
    board.put(fleet("synced"))
    seen = board.since(-1, 0).count
    board.replace([])

    assert board.since(seen, 0).gone == ("rl/qwen",)
