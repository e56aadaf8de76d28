"""The connections to one engine: each request has its own, and its end closes it.

httpcore's pool loses a connection for ever if a request is cancelled just as its reply ends, as
by a time limit on a machine that stood still. A pool that serves one request cannot fill up. It
also never uses a connection that vLLM is about to close.
"""

import asyncio
import ssl

import httpx

_LIMITS = httpx.Limits(max_connections=1, max_keepalive_connections=0)
_AT_ONCE = 8
_UNUSED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Engines are asked by plain HTTP; httpx would make a context in a millisecond for each request."""


class EngineTransport(httpx.AsyncBaseTransport):
    """Sends each request over a pool of its own, and reads the whole reply."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(_AT_ONCE)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; its end, cancelled or not, leaves no connection."""
        async with self._free:
            once = httpx.AsyncHTTPTransport(verify=_UNUSED, trust_env=False, limits=_LIMITS)
            try:
                reply = await once.handle_async_request(request)
                body = b"".join([piece async for piece in reply.aiter_raw()])
            finally:
                await once.aclose()
        return httpx.Response(
            reply.status_code,
            headers=reply.headers,
            stream=httpx.ByteStream(body),
            extensions={"http_version": reply.extensions["http_version"]},
        )
