"""Requests that no client library sends: paths by which one parser may be led past another."""

import asyncio

TRICKS = (
    "{0}",
    "/{0}",
    "{0}/",
    "{0};x",
    "{0}?x=/v1/completions",
    "{0}#/v1/completions",
    "{0}%20",
    "{0}%00",
    "/.{0}",
    "/v1/..{0}",
    "/v1/%2e%2e{0}",
    "/v1/completions/../..{0}",
    "/health/..{0}",
    "/v1/..%2f{1}",
    "/%{2:02x}{3}",
    "\\{1}",
    "http://127.0.0.1{0}",
    "http://x@127.0.0.1:8000{0}",
    "HTTP://localhost/{0}",
    "//127.0.0.1{0}",
)
HEADS = (
    "Host: worker",
    "Host: 127.0.0.1:8000",
    "Host: localhost\r\nX-Forwarded-For: 127.0.0.1",
    "Host: worker\r\nForwarded: for=127.0.0.1",
    "Host: worker\r\nX-Forwarded-Prefix: /v1\r\nX-Original-URL: /v1/completions",
)


def tricks_with(path: str) -> list[str]:
    """List the targets by which a client may try to reach a path; the first is the path itself."""
    return [trick.format(path, path[1:], ord(path[1]), path[2:]) for trick in TRICKS]


async def status(host: str, port: int, line: str, head: str) -> int:
    """Send a request as it is written here; return the status, 0 if there is no answer."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"{line} HTTP/1.1\r\n{head}\r\nConnection: close\r\n\r\n".encode("latin-1"))
        answered = await reader.readline()
        return int(answered.split()[1]) if answered else 0
    finally:
        writer.close()
