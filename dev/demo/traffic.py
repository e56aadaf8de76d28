"""Closed-loop clients that record the fate of every request, until standard input ends.

Runs in the demo's client pod; needs nothing but Python and httpx. Prints one line a
second and, at the end, a summary as JSON on the last line.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx


@dataclass
class Tally:
    """What became of the requests."""

    sent: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    """Answers by finish_reason."""
    errors: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0

    @property
    def in_flight(self) -> int:
        """Requests without an answer yet."""
        return self.sent - sum(self.finished.values()) - sum(self.errors.values())

    def summary(self) -> dict[str, object]:
        """Return everything, for a program to read."""
        return {
            "sent": self.sent,
            "finished": dict(self.finished),
            "errors": dict(self.errors),
            "lost": self.in_flight + sum(self.errors.values()),
            "slowest_s": round(self.slowest_s, 2),
        }


async def client(
    http: httpx.AsyncClient, options: argparse.Namespace, tally: Tally, done: asyncio.Event
) -> None:
    """Send one request after the other."""
    body = {
        "model": options.model,
        "prompt": "one two three",
        "max_tokens": options.tokens,
        "ignore_eos": True,
    }
    while not done.is_set():
        tally.sent += 1
        started = time.monotonic()
        try:
            reply = await http.post("/v1/completions", json=body)
            reply.raise_for_status()
            tally.finished[reply.json()["choices"][0]["finish_reason"]] += 1
        except (httpx.HTTPError, KeyError, ValueError) as error:
            tally.errors[f"{type(error).__name__}: {error}"[:120]] += 1
            await asyncio.sleep(0.2)
        tally.slowest_s = max(tally.slowest_s, time.monotonic() - started)


async def main() -> None:
    """Run the clients."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--model", default="qwen")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    done, tally = asyncio.Event(), Tally()
    loop = asyncio.get_running_loop()
    ended = loop.run_in_executor(None, sys.stdin.read)
    # One connection a request: a Service balances connections, not requests.
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=options.url, timeout=300, limits=limits) as http:
        clients = [
            asyncio.create_task(client(http, options, tally, done)) for _ in range(options.clients)
        ]
        while not ended.done():
            await asyncio.sleep(1)
            answered = sum(tally.finished.values())
            lost = sum(tally.errors.values())
            print(f"{answered} answered, {tally.in_flight} in flight, {lost} lost", flush=True)
        done.set()
        await asyncio.gather(*clients)
    print(json.dumps(tally.summary()), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
