"""Drain the engine before its container ends (``python -m rlfleet_engine.drain``).

This is the preStop hook of the engine's container. It sets the gate to draining, so that the
sidecar ends a change without a driver and releases waiting requests. Then it waits until the
endpoints are withdrawn and until no request waits or runs. It imports only the standard library,
because its start takes from the pod's grace period.

An engine that has not begun to serve ignores SIGTERM: as process 1 of its container while it
imports, and in vLLM's wait for its core. It would end with the grace period, so its core is killed.
"""

import argparse
import contextlib
import http.client
import json
import os
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlfleet_contract import paths
from rlfleet_engine import processes

_WITHDRAWN_S = 2.0
_POLL_S = 0.25
_ANSWER_S = 2.0
_TERMINATION_LOG = Path("/dev/termination-log")
_WHY = "ended before it served: its pod was deleted, or its startup probe failed"
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


def end_start(
    host: str,
    port: int,
    seconds: float,
    engine: int = processes.ENGINE,
    termination_log: Path = _TERMINATION_LOG,
) -> None:
    """Kill what the engine started, for at most ``seconds``, until it ends or serves.

    vLLM's API server ends when its core is killed.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and _is_starting(host, port, engine):
        for process in processes.children(engine):
            _explain(termination_log)
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(_POLL_S)


def _is_starting(host: str, port: int, engine: int) -> bool:
    """Return whether the process runs vLLM, and no server listens yet."""
    try:
        # Outside a worker's container process 1 is another program.
        if b"vllm" not in processes.command(engine):
            return False
        socket.create_connection((host, port), timeout=_ANSWER_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def _explain(file: Path) -> None:
    """Write the cause where Kubernetes keeps it, before vLLM reports that its core was killed."""
    # Only the kubelet creates it.
    with contextlib.suppress(OSError), file.open("r+") as log:
        if not log.read(1):
            log.write(_WHY)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a command; always exits with 0, because the container ends in any case."""
    parser = argparse.ArgumentParser(prog="rlfleet_engine.drain", description=__doc__)
    parser.add_argument("--seconds", type=float, required=True, help="timeout in seconds")
    parser.add_argument("--host", default="127.0.0.1", help="of the engine (%(default)s)")
    parser.add_argument("--port", type=int, default=paths.ENGINE_PORT, help="(%(default)s)")
    options = parser.parse_args(arguments)
    drain(options.host, options.port, options.seconds)
    end_start(options.host, options.port, options.seconds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
