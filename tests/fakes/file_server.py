"""A plain HTTP server of a directory as a store: ranges, strong ETags, and a count of the bytes."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.fakes.threaded_server import threaded

_RANGE = re.compile(r"bytes=(\d+)-(\d+)")
_CHUNK = 1024 * 1024


class FileServer:
    """Where it is, and what left it."""

    def __init__(self) -> None:
        self.url = ""
        self.sent = 0
        """Bytes of bodies."""
        self._lock = threading.Lock()

    def count(self, nbytes: int) -> None:
        with self._lock:
            self.sent += nbytes


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    root: Path
    known: FileServer

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        path, begin, end = self._answer()
        if end > begin:
            self._send(path, begin, end)

    def log_message(self, *_arguments: object) -> None:
        pass

    def _answer(self) -> tuple[Path, int, int]:
        """Send the headers; return the range that belongs to them."""
        path = self.root / self.path.lstrip("/")
        if not path.is_file():
            self.send_response(404)
            self.send_header("content-length", "0")
            self.end_headers()
            return path, 0, 0
        seen = path.stat()
        asked = _RANGE.fullmatch(self.headers.get("range") or "")
        begin, end = (int(asked[1]), int(asked[2]) + 1) if asked else (0, seen.st_size)
        end = min(end, seen.st_size)
        self.send_response(206 if asked else 200)
        self.send_header("etag", f'"{seen.st_size}-{seen.st_mtime_ns}"')
        self.send_header("last-modified", self.date_time_string(seen.st_mtime))
        self.send_header("content-length", str(end - begin))
        self.send_header("content-range", f"bytes {begin}-{end - 1}/{seen.st_size}")
        self.end_headers()
        return path, begin, end

    def _send(self, path: Path, begin: int, end: int) -> None:
        with path.open("rb") as file:
            file.seek(begin)
            while begin < end:
                data = file.read(min(_CHUNK, end - begin))
                self.wfile.write(data)
                self.known.count(len(data))
                begin += len(data)


@contextmanager
def serving(root: Path, host: str = "127.0.0.1") -> Iterator[FileServer]:
    """Serve the files of a directory."""
    known = FileServer()
    handler = type("Handler", (_Handler,), {"root": root, "known": known})
    with threaded(handler, host) as known.url:
        yield known
