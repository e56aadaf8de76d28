"""A worker that drips its replies is left in the time of a piece, whatever part it drips."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from rlfleet_sidecar.sharing import piece_client
from rlfleet_sidecar.sharing.piece_client import Fetched, PieceClient

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4096\r\n\r\n"
Ask = Callable[[PieceClient, str], object]


def state_of(client: PieceClient, address: str) -> object:
    return client.holding(address, 0)


def piece_of(client: PieceClient, address: str) -> object:
    return client.fetch(address, 0, memoryview(bytearray(4096)), forwards=True)[0]


@pytest.fixture
def dripping(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that sends the given beginning at once, and then some bytes a second."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(4096)
                connection.sendall(request.param)
                for _ in range(100):
                    connection.sendall(b"x")
                    time.sleep(0.05)

        threading.Thread(target=answer, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    "dripping", [b"", HEAD[:20], HEAD], indirect=True, ids=["all", "head", "body"]
)
@pytest.mark.parametrize("ask", [state_of, piece_of])
def test_a_reply_that_drips_is_left(
    dripping: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(piece_client, "PIECE_S", 0.5)
    client = PieceClient("step-1", "0" * 32, lambda: "token")
    begun = time.monotonic()

    assert ask(client, dripping) is Fetched.BROKEN

    assert time.monotonic() - begun < 2
    client.close()
