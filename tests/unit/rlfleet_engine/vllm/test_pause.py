"""The engine core is paused by its own call if that is there, else by vLLM's route."""

from types import SimpleNamespace
from typing import Any

import pytest

from rlfleet_engine.vllm.pause import paused


class Core:
    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[tuple[str, bool] | str] = []
        self.error = error

    async def pause_scheduler_async(self, mode: str = "abort", clear_cache: bool = True) -> None:  # noqa: FBT001, FBT002 - vLLM's
        if self.error is not None:
            raise self.error
        self.calls.append((mode, clear_cache))

    async def clear_mm_cache_async(self) -> None:
        self.calls.append("images")


class Older:
    async def pause_scheduler_async(self) -> None:
        raise AssertionError


class Blocking(Core):
    def clear_mm_cache_async(self) -> None:  # type: ignore[override]
        raise AssertionError


def scope(core: Any, renderer: Any, query: str = "") -> dict[str, Any]:
    client = SimpleNamespace(engine_core=core, renderer=renderer)
    app = SimpleNamespace(state=SimpleNamespace(engine_client=client))
    return {"app": app, "query_string": query.encode()}


@pytest.mark.parametrize(
    ("query", "calls"),
    [
        ("", ["images", ("abort", True)]),
        ("mode=keep&clear_cache=true", ["images", ("keep", True)]),
        ("mode=wait&clear_cache=false", [("wait", False)]),
    ],
)
async def test_it_calls_what_vllm_s_own_pause_calls_in_its_order(
    query: str, calls: list[Any]
) -> None:
    core = Core()

    assert await paused(scope(core, core, query)) == (200, b'{"status":"paused"}')
    assert core.calls == calls


async def test_a_failure_is_answered_as_vllm_does() -> None:
    found = await paused(scope(Core(RuntimeError("no")), Core()))

    assert found == (500, b'{"error":"Failed to pause generation: no"}')


@pytest.mark.parametrize(
    ("core", "renderer", "query"),
    [
        (None, Core(), ""),
        (Core(), None, ""),
        (Older(), Core(), ""),
        (Core(), Blocking(), ""),
        (Core(), Core(), "mode=unheard"),
        (Core(), Core(), "mode=keep&clear_cache=1"),
    ],
    ids=["no core", "no renderer", "other parameters", "not async", "mode", "clear_cache"],
)
async def test_all_else_is_left_to_vllm_s_route(core: Any, renderer: Any, query: str) -> None:
    assert await paused(scope(core, renderer, query)) is None


async def test_an_application_without_an_engine_client_is_left_to_its_route() -> None:
    assert await paused({"app": SimpleNamespace(state=SimpleNamespace())}) is None
    assert await paused({}) is None
