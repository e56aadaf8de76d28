"""What was begun for callers ends, whatever becomes of the callers, and is begun once."""

import asyncio
import gc
from typing import Any

from rlfleet_contract.single_flight import SingleFlight


async def left(flight: SingleFlight[str], work: Any) -> None:
    """Join the work as a caller that is cancelled."""
    caller = asyncio.create_task(flight.join("a", work))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)


async def test_it_ends_though_its_caller_went_away_and_nothing_else_holds_it() -> None:
    flight, ended = SingleFlight[str](), asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0.02)
        ended.set()

    await left(flight, work)
    gc.collect()

    async with asyncio.timeout(1):
        await ended.wait()


async def test_its_answer_and_its_error_are_those_of_every_caller() -> None:
    flight, begun = SingleFlight[str](), 0

    async def work(error: Exception | None) -> int:
        nonlocal begun
        begun += 1
        await asyncio.sleep(0.01)
        if error is not None:
            raise error
        return 7

    assert await asyncio.gather(*(flight.join("a", lambda: work(None)) for _ in range(2))) == [7, 7]
    callers = [flight.join("a", lambda: work(LookupError("x"))) for _ in range(2)]
    seen = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(error) for error in seen] == [LookupError, LookupError]
    assert begun == 2


async def test_ended_work_starts_again_and_other_keys_run_in_parallel() -> None:
    flight, free = SingleFlight[str](), asyncio.Event()

    async def work(number: int) -> int:
        await free.wait()
        return number

    first, second = (flight.begin(key, lambda: work(1)) for key in "ab")
    assert flight.keys == ("a", "b")
    free.set()
    await first
    # Even before its end was noted.
    again = flight.begin("a", lambda: work(2))
    await flight.landed()

    assert (await again, await second) == (2, 1)
    await asyncio.sleep(0)
    assert not flight.keys


async def test_an_error_that_no_caller_stayed_for_is_no_error_of_the_loop_s() -> None:
    loop, told = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _loop, context: told.append(context))
    flight = SingleFlight[str]()

    async def work() -> None:
        await asyncio.sleep(0.01)
        raise LookupError

    flight.begin("a", work)
    await flight.landed()
    await asyncio.sleep(0)
    gc.collect()

    assert not told


async def test_a_caller_that_left_does_not_end_it_and_the_next_one_gets_the_answer() -> None:
    flight, free = SingleFlight[str](), asyncio.Event()

    async def work() -> int:
        await free.wait()
        return 7

    await left(flight, work)
    next_one = asyncio.create_task(flight.join("a", work))
    await asyncio.sleep(0)
    free.set()

    assert await next_one == 7
