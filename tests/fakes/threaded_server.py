"""Runs a handler of the standard library's HTTP server in a thread."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def threaded(
    handler: type[BaseHTTPRequestHandler],
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
) -> Iterator[str]:
    """Serve at a free port, over TLS with a context; yields the URL."""
    with ThreadingHTTPServer((host, 0), handler) as server:
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http{'s' if tls else ''}://{host}:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
