"""Pauses vLLM's engine core as vLLM's route does, without the rest that the route adds.

vLLM sleeps 20 ms after the core has paused, so that last outputs reach their clients before its
answer ("not required for correctness"): requests would wait at the gate for that. An engine
whose parts have other names must be paused by vLLM's route.
"""

import inspect
from typing import Any
from urllib.parse import parse_qs

from rlfleet_engine import json_logs
from rlfleet_engine.asgi import Scope, compact

_MODES = frozenset({"abort", "wait", "keep"})
_OK, _FAILED = 200, 500
_log = json_logs.logger(__name__)


async def paused(scope: Scope) -> tuple[int, bytes] | None:
    """Pause as the query demands; returns vLLM's answer, None if only its route can."""
    query = parse_qs(scope.get("query_string", b"").decode())
    mode, clears = query.get("mode", ["abort"])[-1], query.get("clear_cache", ["true"])[-1]
    engine = _engine(scope)
    if engine is None or mode not in _MODES or clears not in {"true", "false"}:
        return None
    try:
        if clears == "true":
            await engine.renderer.clear_mm_cache_async()
        await engine.engine_core.pause_scheduler_async(mode=mode, clear_cache=clears == "true")
    except Exception as error:  # noqa: BLE001 - answered as vLLM answers it
        _log.exception("Failed to pause the engine core")
        return _FAILED, compact({"error": f"Failed to pause generation: {error}"})
    return _OK, compact({"status": "paused"})


def _engine(scope: Scope) -> Any | None:
    """Return vLLM's engine client if it has the parts that its own pause calls."""
    state = getattr(scope.get("app"), "state", None)
    engine = getattr(state, "engine_client", None)
    core, renderer = getattr(engine, "engine_core", None), getattr(engine, "renderer", None)
    pauses = getattr(core, "pause_scheduler_async", None)
    clears = getattr(renderer, "clear_mm_cache_async", None)
    if not inspect.iscoroutinefunction(pauses) or not inspect.iscoroutinefunction(clears):
        return None
    takes = inspect.signature(pauses).parameters.keys()
    return engine if {"mode", "clear_cache"} <= takes else None
