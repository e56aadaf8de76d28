"""What was begun for a caller ends, whatever becomes of the caller."""

import asyncio
import gc

import pytest

from rlfleet_operator.shielded import Begun


async def test_it_ends_though_its_caller_went_away_and_nothing_else_holds_it() -> None:
    begun, ended = Begun(), asyncio.Event()

    async def work() -> int:
        await asyncio.sleep(0.02)
        ended.set()
        return 1

    caller = asyncio.create_task(begun.through(work()))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    del caller
    gc.collect()

    async with asyncio.timeout(1):
        await ended.wait()


async def test_its_answer_and_its_error_are_the_caller_s() -> None:
    async def work(error: Exception | None) -> int:
        if error is not None:
            raise error
        return 7

    assert await Begun().through(work(None)) == 7
    with pytest.raises(LookupError):
        await Begun().through(work(LookupError("x")))
