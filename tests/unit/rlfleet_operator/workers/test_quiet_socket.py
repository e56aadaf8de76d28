"""On a watch's socket no sign of life wakes the operator, but reports and its end do."""

import select
import socket
from asyncio.trsock import TransportSocket
from collections.abc import Iterator

import pytest

from rlfleet_contract.worker.report import Stage, WorkerReport
from rlfleet_operator.workers.quiet_socket import LEAST, QuietSocket

SIGN = b"1\r\n\n\r\n"


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return the sidecar's end of a connection, and the operator's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
        with ours, theirs:
            yield theirs, ours


def wakes(ours: socket.socket) -> bool:
    with select.epoll() as waiting:
        waiting.register(ours, select.EPOLLIN)
        return bool(waiting.poll(0.2))


def test_a_sign_does_not_wake_and_is_seen(ends: tuple[socket.socket, socket.socket]) -> None:
    theirs, ours = ends
    quiet = QuietSocket(TransportSocket(ours))
    quiet.wake_for(LEAST)
    assert not quiet.has_more()

    theirs.sendall(SIGN)

    assert not wakes(ours)
    assert quiet.has_more()
    assert not quiet.has_more(), "the same one"
    theirs.sendall(SIGN)
    assert not wakes(ours)
    assert quiet.has_more()


def test_a_report_wakes_and_so_does_the_rest_of_one(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    theirs, ours = ends
    quiet = QuietSocket(TransportSocket(ours))
    quiet.wake_for(LEAST)

    theirs.sendall(bytes(LEAST))
    assert wakes(ours)

    ours.recv(LEAST)
    theirs.sendall(SIGN)
    assert not wakes(ours)
    quiet.wake_for(1)
    assert wakes(ours)


def test_the_end_of_the_connection_wakes(ends: tuple[socket.socket, socket.socket]) -> None:
    theirs, ours = ends
    QuietSocket(TransportSocket(ours)).wake_for(LEAST)

    theirs.close()

    assert wakes(ours)


def test_nothing_arrives_without_a_socket_or_on_a_closed_one(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    theirs, ours = ends
    quiet = QuietSocket(TransportSocket(ours))
    theirs.sendall(SIGN)
    ours.close()

    quiet.wake_for(LEAST)

    assert not quiet.has_more()
    assert not QuietSocket(None).has_more()


def test_the_shortest_report_wakes() -> None:
    assert len(WorkerReport(session="", stage=Stage.DOWN).model_dump_json()) > LEAST
