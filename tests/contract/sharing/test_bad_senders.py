"""A worker that lies, dies, stalls or drips costs time, and no byte is wrong."""

import logging
import socket
import time
from http.server import BaseHTTPRequestHandler

import pytest

from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.supply import Supply
from rlfleet_sidecar.sharing import shared_source
from tests.contract.sharing.fleet import Fleet, Senders, behind, from_store
from tests.contract.sharing.senders import ScriptedSender, Serve, send


def lie(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    send(handler, bytes(byte ^ 1 for byte in data))


def begin(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    """Send half a piece."""
    handler.send_response(200)
    handler.send_header("content-length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data[: len(data) // 2])
    handler.wfile.flush()


def die(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    begin(handler, data)
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def stall(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    begin(handler, data)
    time.sleep(3)


def drip(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    begin(handler, data)
    for byte in data[len(data) // 2 :][:30]:
        handler.wfile.write(bytes([byte]))
        handler.wfile.flush()
        time.sleep(0.1)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("fault", [die, stall, drip, lie, None])
async def test_a_worker_that_misbehaves_costs_time_and_no_byte(
    fleet: Fleet, senders: Senders, fault: Serve | None, caplog: pytest.LogCaptureFixture
) -> None:
    bad = senders.add(serve=fault) if fault else senders.add(token="another")
    good = senders.add()
    caplog.set_level(logging.INFO)

    await fleet.prepare(1, behind(bad, good))

    assert fleet.is_right(1)
    assert from_store(caplog) == [0]
    assert set(good.asked) == set(range(len(fleet.pieces())))


async def test_a_worker_that_lied_is_not_asked_again(
    fleet: Fleet, senders: Senders, caplog: pytest.LogCaptureFixture
) -> None:
    liar, good = senders.add(serve=lie), senders.add()

    await fleet.prepare(1, behind(liar, good))

    threads = shared_source.THREADS
    assert 1 <= sum(liar.asked.values()) <= threads
    assert "Worker sent wrong bytes, not asking it again" in caplog.text


async def test_a_worker_whose_every_predecessor_lies_reads_the_store(
    fleet: Fleet, senders: Senders, caplog: pytest.LogCaptureFixture
) -> None:
    liar = senders.add(serve=lambda handler, data: send(handler, bytes(len(data))))
    caplog.set_level(logging.INFO)

    await fleet.prepare(1, behind(liar))

    assert fleet.is_right(1)
    assert from_store(caplog) == [sum(stamp.size for stamp in fleet.stamps())]


@pytest.mark.parametrize("shows", ["its hashes", "its bytes too"])
async def test_the_worker_next_to_a_lying_reader_rejects_the_version(
    fleet: Fleet, senders: Senders, shows: str
) -> None:
    wrong = [bytes(byte ^ 1 for byte in data) for data in fleet.pieces()]
    pieces = wrong if shows == "its bytes too" else fleet.pieces()
    lies = ScriptedSender(wrong).holding(0).hashes
    reader = senders.add(pieces=pieces, hashes=lies)

    reply = await fleet.ask(1, behind(reader, succeeds=True))

    problem = Problem.model_validate_json(reply.content)
    assert problem.code is Code.CHECKPOINT_UNREADABLE
    assert "is not what a worker read" in problem.message
    assert reader.address in problem.message
    report = await fleet.workers[1].report()
    assert report.staged == []


async def test_two_readers_that_disagree_are_both_rejected(fleet: Fleet, senders: Senders) -> None:
    one = senders.add(hashes=[*ScriptedSender(fleet.pieces()).holding(0).hashes[:2]], held=2)
    lies: list[str | None] = ["0" * 64 for _ in fleet.pieces()]
    other = senders.add(hashes=[None, *lies[1:]], held=0)
    supply = Supply(readers=(one.address, other.address), senders=(one.address,))

    reply = await fleet.ask(1, supply)

    assert Problem.model_validate_json(reply.content).code is Code.CHECKPOINT_UNREADABLE
