"""Let an engine that is to end answer what it has (``python -m rlfleet_engine.drain``).

The engine container's preStop hook. First it waits until endpoints were withdrawn, so
that nothing new comes, then until nobody is waiting or being answered. Standard library
only: a hook that starts slowly eats the pod's grace period.
"""

import argparse
import http.client
import json
import time
from collections.abc import Sequence

from rlfleet_contract import api

_WITHDRAWN_S = 2.0
_POLL_S = 0.25


def left(host: str, port: int) -> int:
    """Count the requests that are waiting or being answered; none if nobody answers."""
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", api.GATE_PATH)
        state = json.loads(connection.getresponse().read())
        return int(state["waiting"]) + int(state["in_flight"])
    except (OSError, ValueError, KeyError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def drain(host: str, port: int, seconds: float, withdrawn_s: float = _WITHDRAWN_S) -> bool:
    """Wait until the engine is idle or the time is over; tell whether it is idle."""
    deadline = time.monotonic() + seconds
    time.sleep(min(withdrawn_s, seconds))
    while busy := left(host, port):
        if time.monotonic() >= deadline:
            break
        time.sleep(_POLL_S)
    return not busy


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a command; the exit status never stops the container's end."""
    parser = argparse.ArgumentParser(prog="rlfleet_engine.drain", description=__doc__)
    parser.add_argument("--seconds", type=float, required=True, help="the longest wait")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=api.ENGINE_PORT)
    options = parser.parse_args(arguments)
    drain(options.host, options.port, options.seconds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
