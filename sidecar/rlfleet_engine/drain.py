"""Let an engine that is to end answer what it has (``python -m rlfleet_engine.drain``).

The engine container's preStop hook. First it tells the gate, so that the sidecar ends a
change that nobody leads any more and lets go who is held. Then it waits until endpoints were
withdrawn, so that nothing new comes, and until nobody is waiting or being answered. Standard
library only: a hook that starts slowly eats the pod's grace period.
"""

import argparse
import http.client
import json
import time
from collections.abc import Sequence
from typing import Any

from rlfleet_contract import paths

_WITHDRAWN_S = 2.0
_POLL_S = 0.25
_ANSWER_S = 2.0
_State = dict[str, Any]


def left(host: str, port: int, answer_s: float = _ANSWER_S) -> int | None:
    """Count the requests that are waiting or being answered; None while nobody can tell.

    Only where nobody listens is nobody left: a server that is busy for a while still has them.
    """
    try:
        state = _asked(host, port, answer_s, None)
        if not state["is_draining"]:
            state = _asked(host, port, answer_s, {"action": "drain", "boot": state["boot"]})
        return int(state["waiting"]) + int(state["in_flight"])
    except ConnectionRefusedError:
        return 0
    except (OSError, ValueError, KeyError, http.client.HTTPException):
        return None


def _asked(host: str, port: int, answer_s: float, command: _State | None) -> _State:
    """Tell how the gate stands, after a command to it if there is one."""
    connection = http.client.HTTPConnection(host, port, timeout=answer_s)
    try:
        body = None if command is None else json.dumps(command)
        connection.request("GET" if body is None else "POST", paths.GATE_PATH, body)
        state: _State = json.loads(connection.getresponse().read())
        return state
    finally:
        connection.close()


def drain(
    host: str,
    port: int,
    seconds: float,
    withdrawn_s: float = _WITHDRAWN_S,
    answer_s: float = _ANSWER_S,
) -> bool:
    """Wait until the engine is idle or the time is over; tell whether it is idle."""
    deadline = time.monotonic() + seconds
    left(host, port, answer_s)
    time.sleep(min(withdrawn_s, seconds))
    while left(host, port, answer_s) != 0:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a command; the exit status never stops the container's end."""
    parser = argparse.ArgumentParser(prog="rlfleet_engine.drain", description=__doc__)
    parser.add_argument("--seconds", type=float, required=True, help="the longest wait")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=paths.ENGINE_PORT)
    options = parser.parse_args(arguments)
    drain(options.host, options.port, options.seconds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
