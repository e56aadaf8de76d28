"""The report as a stream of lines: one at once and one with each news, and signs of life between.

Each line is made when the caller can take it. So a slow caller gets fewer lines, and always the
newest state. It must stay true that an empty line says: as in the last line.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from rlfleet_contract.paths import SIGN_S
from rlfleet_contract.worker.report import WorkerReport
from rlfleet_sidecar.state.news import News

GAP_S = 0.25
"""The shortest time between two reports: a change has some ten records, in as many milliseconds."""
LOOK_S = 1.0
"""How often a report is compared without an announcement: a prepare's progress has none."""


async def lines(
    report: Callable[[], WorkerReport],
    news: News,
    is_admitted: Callable[[], bool],
    sign_s: float = SIGN_S,
) -> AsyncIterator[bytes]:
    """Yield lines while the caller is admitted: the token may be replaced."""
    known: WorkerReport | None = None
    wrote_at = 0.0
    with news.listening() as announced:
        while is_admitted():
            announced.clear()
            now, found = time.monotonic(), report()
            if known is None or found.is_news_after(known):
                known, wrote_at = found, now
                yield found.model_dump_json().encode() + b"\n"
                await asyncio.sleep(GAP_S)
            elif now - wrote_at >= sign_s:
                wrote_at = now
                yield b"\n"
            with suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK_S, sign_s)):
                    await announced.wait()
