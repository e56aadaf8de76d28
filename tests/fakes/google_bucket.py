"""One bucket as Google Cloud Storage serves it: conditional writes compare an object's generation.

It has what is used of the XML API, and knows no credentials.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import md5
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.fakes.threaded_server import threaded

_CONDITION = "x-goog-if-generation-match"
_MODIFIED = "Mon, 01 Jan 2024 00:00:00 GMT"


@dataclass
class GoogleBucket:
    """The objects, each with its generation."""

    url: str = ""
    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    parts: dict[str, list[bytes]] = field(default_factory=dict)
    generation: int = 1_700_000_000_000_000
    overtaken_by: dict[str, bytes] = field(default_factory=dict)
    """What another writer puts just before the next write, by key."""
    lost: set[str] = field(default_factory=set)
    """Last names of keys whose next write is done, and answered with an error."""
    cut: set[str] = field(default_factory=set)
    """Last names of keys whose next write is done, and whose connection is then reset."""

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of obstore.store.from_url."""
        return {
            "config": {"base_url": self.url},
            "client_options": {"allow_http": True},
            "credential_provider": lambda: {"token": "t", "expires_at": None},
        }

    def put(self, key: str, data: bytes) -> int:
        """Replace an object; return its generation."""
        self.generation += 1
        self.objects[key] = (data, self.generation)
        return self.generation

    def generation_of(self, key: str) -> int:
        """Return the generation of an object; 0 without one."""
        return self.objects.get(key, (b"", 0))[1]

    def listing(self, prefix: str, delimiter: str) -> str:
        """Return what is below a prefix."""
        rests = {key.removeprefix(prefix) for key in self.objects if key.startswith(prefix)}
        deeper = {rest.partition("/")[0] for rest in rests if delimiter and "/" in rest}
        direct = {rest for rest in rests if rest.partition("/")[0] not in deeper}
        inner = "".join(
            f"<Contents><Key>{prefix}{rest}</Key><Size>1</Size><ETag>x</ETag>"
            "<LastModified>2024-01-01T00:00:00Z</LastModified></Contents>"
            for rest in sorted(direct)
        ) + "".join(
            f"<CommonPrefixes><Prefix>{prefix}{name}/</Prefix></CommonPrefixes>"
            for name in sorted(deeper)
        )
        return f"<ListBucketResult>{inner}</ListBucketResult>"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    known: GoogleBucket

    def do_PUT(self) -> None:
        key, query, data = self._request()
        if "uploadId" in query:
            self.known.parts.setdefault(key, []).append(data)
            self._send(200, etag='"part"')
            return
        if (other := self.known.overtaken_by.pop(key, None)) is not None:
            self.known.put(key, other)
        condition = self.headers.get(_CONDITION)
        if condition is not None and int(condition) != self.known.generation_of(key):
            self._send(412, "<Error><Code>PreconditionFailed</Code></Error>")
            return
        generation = self.known.put(key, data)
        name = key.rpartition("/")[2]
        if name in self.known.cut:
            self.known.cut.remove(name)
            self._reset()
            return
        if name in self.known.lost:
            self.known.lost.remove(name)
            self._send(503, "<Error><Code>ServiceUnavailable</Code></Error>")
            return
        self._described(data, generation, b"")

    def do_POST(self) -> None:
        key, query, _ = self._request()
        if "uploads" in query:
            inner = "<Bucket>b</Bucket><Key>k</Key><UploadId>1</UploadId>"
            name = "InitiateMultipartUploadResult"
        else:
            self.known.put(key, b"".join(self.known.parts.pop(key, [])))
            inner = '<Location>x</Location><Bucket>b</Bucket><Key>k</Key><ETag>"x"</ETag>'
            name = "CompleteMultipartUploadResult"
        self._send(200, f"<{name}>{inner}</{name}>")

    def do_GET(self) -> None:
        key, query, _ = self._request()
        if not key:
            prefix, delimiter = (query.get(name, [""])[0] for name in ("prefix", "delimiter"))
            self._send(200, self.known.listing(prefix, delimiter))
        elif key in self.known.objects:
            data, generation = self.known.objects[key]
            self._described(data, generation, data)
        else:
            self._send(404, "<Error><Code>NoSuchKey</Code></Error>")

    def do_DELETE(self) -> None:
        """Delete an object, or end an upload without a part, which Google does not have."""
        key, query, _ = self._request()
        is_there = "uploadId" in query or self.known.objects.pop(key, None) is not None
        self._send(204 if is_there else 404)

    def log_message(self, *_arguments: object) -> None:
        pass

    def _request(self) -> tuple[str, dict[str, list[str]], bytes]:
        url = urlsplit(self.path)
        key = unquote(url.path).lstrip("/").partition("/")[2]
        data = self.rfile.read(int(self.headers.get("content-length", 0)))
        return key, parse_qs(url.query, keep_blank_values=True), data

    def _reset(self) -> None:
        """Close the connection by a reset, as a proxy that restarts does."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def _described(self, data: bytes, generation: int, body: bytes) -> None:
        tag = md5(data, usedforsecurity=False).hexdigest()
        described = {"etag": f'"{tag}"', "last-modified": _MODIFIED}
        self._send(200, body, **described, **{"x-goog-generation": str(generation)})

    def _send(self, status: int, body: str | bytes = b"", **headers: str) -> None:
        sent = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)


@contextmanager
def serving() -> Iterator[GoogleBucket]:
    """Serve an empty bucket, whatever its name."""
    known = GoogleBucket()
    handler = type("Handler", (_Handler,), {"known": known})
    with threaded(handler) as known.url:
        yield known
