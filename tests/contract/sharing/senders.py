"""A worker before others that behaves as a test says: it has a version, or lies about it."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from blake3 import blake3

from rlfleet_contract.worker.supply import Holding

Serve = Callable[[BaseHTTPRequestHandler, bytes], None]
"""Answers a request for a piece, of which it gets the true bytes."""


def send(handler: BaseHTTPRequestHandler, data: bytes, status: int = 200) -> None:
    """Answer with these bytes."""
    handler.send_response(status)
    handler.send_header("content-length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


@dataclass
class ScriptedSender:
    """What a worker has, and how it answers."""

    pieces: Sequence[bytes]
    serve: Serve = send
    reads: bool = True
    hashes: Sequence[str | None] | None = None
    """Of its pieces, the true ones by default."""
    held: int | None = None
    token: str = ""
    """The token that it demands; empty: none."""
    address: str = ""
    asked: Counter[int] = field(default_factory=Counter)
    """How often it was asked for each piece."""
    is_gone: bool = False

    def holding(self, first: int) -> Holding:
        """Return its answer about what it has."""
        known = self.hashes or [blake3(data).hexdigest() for data in self.pieces]
        count = len(self.pieces)
        held = count if self.held is None else self.held
        return Holding(
            pieces=count,
            held=held,
            within_reach=held,
            pace=0,
            reads=self.reads,
            first=first,
            hashes=[*known[first:]] if self.reads else [],
        )


@contextmanager
def scripted(sender: ScriptedSender) -> Iterator[ScriptedSender]:
    """Run it on an address of its own."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if sender.is_gone:
                self.close_connection = True
                return
            if sender.token and self.headers["authorization"] != f"Bearer {sender.token}":
                send(self, b"{}", 401)
                return
            path, _, query = self.path.partition("?")
            last = path.rsplit("/", 1)[-1]
            if not last.isdecimal():
                first = int(query.partition("=")[2] or 0)
                send(self, sender.holding(first).model_dump_json().encode())
                return
            sender.asked[int(last)] += 1
            sender.serve(self, sender.pieces[int(last)])

        def log_message(self, *_arguments: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *_arguments: object) -> None:
            """Callers hang up on what they do not accept."""

    with Server(("127.0.0.1", 0), Handler) as server:
        sender.address = f"127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield sender
        finally:
            server.shutdown()
            thread.join()
