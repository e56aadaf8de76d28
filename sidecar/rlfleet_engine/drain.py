"""Drain the engine before its container ends (``python -m rlfleet_engine.drain``).

This is the preStop hook of the engine's container. It sets the gate to draining, so that the
sidecar ends a change without a driver and releases waiting requests. Then it waits until the
endpoints are withdrawn and until no request waits or runs. It imports only the standard library,
because its start takes from the pod's grace period.
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
    """Return the number of requests that wait or run; None if it cannot be read.

    Only a refused connection means 0: a busy server still has its requests.
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
    """Return the gate's state, after a command if one is given."""
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
    """Wait at most ``seconds`` until the engine is idle; return whether it is."""
    deadline = time.monotonic() + seconds
    left(host, port, answer_s)
    time.sleep(min(withdrawn_s, seconds))
    while left(host, port, answer_s) != 0:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a command; always exits with 0, because the container ends in any case."""
    parser = argparse.ArgumentParser(prog="rlfleet_engine.drain", description=__doc__)
    parser.add_argument("--seconds", type=float, required=True, help="timeout in seconds")
    parser.add_argument("--host", default="127.0.0.1", help="of the engine (%(default)s)")
    parser.add_argument("--port", type=int, default=paths.ENGINE_PORT, help="(%(default)s)")
    options = parser.parse_args(arguments)
    drain(options.host, options.port, options.seconds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
