"""The connections to one engine: each request has its own, and its end closes it.

After an exception in a handler, vLLM returns 500 and closes the connection unannounced: the next
request on it would be lost. For a connection and a request aiohttp needs half the processor time
of httpcore, and a change sends fifteen.
"""

import aiohttp
import httpx

_AT_ONCE = 8


class EngineTransport(httpx.AsyncBaseTransport):
    """Sends each request over a connection of its own, and reads the whole reply."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; its end, cancelled or not, leaves no connection."""
        limits = request.extensions["timeout"]
        try:
            async with self._opened().request(
                request.method,
                str(request.url),
                headers=request.headers.multi_items(),
                data=request.content or None,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    connect=limits["pool"], sock_connect=limits["connect"], sock_read=limits["read"]
                ),
            ) as reply:
                body = httpx.ByteStream(await reply.read())
                return httpx.Response(reply.status, headers=reply.raw_headers, stream=body)
        except aiohttp.ClientConnectorError as error:
            raise httpx.ConnectError(str(error)) from error
        except aiohttp.ConnectionTimeoutError as error:
            raise httpx.ConnectTimeout(str(error)) from error
        except aiohttp.ServerTimeoutError as error:
            raise httpx.ReadTimeout(str(error)) from error
        except aiohttp.ClientError as error:
            raise httpx.ReadError(f"{type(error).__name__} {error}") from error

    async def aclose(self) -> None:
        """Close what is open."""
        if self._session is not None:
            await self._session.close()

    def _opened(self) -> aiohttp.ClientSession:
        """Return the session, which only a running event loop can make."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_AT_ONCE, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return self._session
