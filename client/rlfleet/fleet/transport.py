"""The connections of the asynchronous clients: each request has its own, and its end closes it.

httpcore's pool loses a connection for ever if a request is cancelled just as its reply ends. A
trainer that gives up waits often would fill it, and find no operator from then on.
"""

import ssl

import httpx

_LIMITS = httpx.Limits(max_connections=1, max_keepalive_connections=0)


class OneRequestTransport(httpx.AsyncBaseTransport):
    """Sends each request over a pool of its own, and reads the whole reply."""

    def __init__(self, verify: ssl.SSLContext, proxy: str | None = None) -> None:
        """Take the context once: to make one reads all CAs."""
        self._verify, self._proxy = verify, proxy

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; its end, cancelled or not, leaves no connection."""
        once = httpx.AsyncHTTPTransport(
            verify=self._verify, trust_env=False, limits=_LIMITS, proxy=self._proxy
        )
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
