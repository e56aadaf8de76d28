"""Ends calls that were under way when vLLM's core died: vLLM itself never does.

A call waits for the core's reply (v1/engine/core_client.py, to 0.32), and vLLM's server exits only
after each call has ended. An engine whose core died in a pause or a reload stayed down until
its liveness probe had failed and its grace period had passed, for minutes.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from rlfleet_engine import json_logs
from rlfleet_engine.asgi import Scope
from rlfleet_engine.gate.held_request import Application
from rlfleet_engine.gate.inner_client import has_died

_LOOK_S = 1.0
_GRACE_S = 5.0
"""The sidecar finds in this time that the server has stopped to listen, and leaves by itself."""
_log = json_logs.logger(__name__)


async def ends(
    app: Application,
    scope: Scope,
    call: Coroutine[Any, Any, None],
    look_s: float = _LOOK_S,
    grace_s: float = _GRACE_S,
) -> bool:
    """Await a call; cancel it and return False if the core is dead for longer than ``grace_s``."""
    task = asyncio.create_task(call)
    dead_s = 0.0
    try:
        while not (await asyncio.wait({task}, timeout=look_s))[0]:
            dead_s = dead_s + look_s if await has_died(app, scope) else 0.0
            if dead_s > grace_s:
                _log.warning("Ending a call of a core that died", extra={"path": scope["path"]})
                return False
        await task
    finally:
        task.cancel()
        await asyncio.wait({task}, timeout=look_s)
    return True
