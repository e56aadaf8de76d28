"""Serves ASGI applications on many addresses in one running loop, cheaply.

uvicorn's own server wakes ten times a second; with hundreds of applications in one
process that is most of the work. So its protocol is used without it.
"""

import asyncio
import socket
from pathlib import Path
from weakref import WeakSet

import uvicorn
from uvicorn.server import ServerState

from rlfleet_contract.tls import serving_context
from rlfleet_sidecar.http.connection_limit import KEEP_ALIVE_S
from rlfleet_sidecar.http.problems import Protocol

_ROUNDS = 4
"""A connection that was accepted just now gets its transport a few turns of the loop later."""


def reserved(host: str) -> socket.socket:
    """Return a socket that keeps a free port for servers that ask for it by its number.

    Without it the port of a server that ended goes to the next process that asks the system
    for any port, and the server's callers reach that one. Bound but not listening, and with
    SO_REUSEADDR on both sides, it is in no server's way.
    """
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind((host, 0))
    return keeper


class Listener:
    """One application on one address."""

    def __init__(self, application: object, host: str, port: int, tls: Path | None = None) -> None:
        """``tls`` is a folder with a certificate and its key; without it it is plain HTTP."""
        self._config = uvicorn.Config(
            application,  # type: ignore[arg-type]
            http="h11",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            # As a real sidecar: uvicorn's own 5 s would end each connection between two polls.
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self._state = ServerState()
        self._host, self._tls = host, tls
        self.port = port
        self._server: asyncio.Server | None = None
        self._protocols: WeakSet[Protocol] = WeakSet()

    async def start(self) -> None:
        """Accept connections; port 0 becomes the one that was given."""
        self._config.load()
        self._server = await asyncio.get_running_loop().create_server(
            self._protocol,
            self._host,
            self.port,
            ssl=None if self._tls is None else serving_context(self._tls),
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def _protocol(self) -> Protocol:
        protocol = Protocol(self._config, self._state, {})
        self._protocols.add(protocol)
        return protocol

    def hang_up(self) -> None:
        """Break every connection that there is, also one that came while it ended."""
        for protocol in list(self._protocols):
            if protocol.transport is not None:
                protocol.transport.abort()

    async def stop(self) -> None:
        """End as a killed process does: connections break and work stops."""
        if self._server is None:
            return
        for listening in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listening.fileno())
        # asyncio loses a connection whose server is closed between its acceptance and its
        # transport; so nothing is accepted after this, before the server is closed.
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)
        self._server.close()
        for _ in range(_ROUNDS):
            self.hang_up()
            await asyncio.sleep(0)
        tasks = list(self._state.tasks)
        current = asyncio.current_task()
        for task in tasks:
            if task is not current:
                task.cancel()
        await asyncio.sleep(0)
        self._server = None
