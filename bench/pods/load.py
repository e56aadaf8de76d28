"""Closed-loop clients that date every token, until standard input ends.

Runs in the client pod. Prints one JSON object: when the tokens arrived, in seconds since
the epoch, and what became of the requests.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter

import httpx

_PAUSE_S = 0.2


async def client(
    http: httpx.AsyncClient,
    body: dict[str, object],
    told: tuple[list[float], Counter[str]],
    done: asyncio.Event,
) -> None:
    """Send one request after the other."""
    times, fates = told
    while not done.is_set():
        try:
            async with http.stream("POST", "/v1/completions", json=body) as reply:
                reply.raise_for_status()
                async for line in reply.aiter_lines():
                    if line.startswith("data: {"):
                        times.append(round(time.time(), 3))
            fates["answered"] += 1
        except httpx.HTTPError as error:
            fates[type(error).__name__] += 1
            await asyncio.sleep(_PAUSE_S)


async def main() -> None:
    """Run the clients."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=24)
    options = parser.parse_args()
    done, told = asyncio.Event(), (list[float](), Counter[str]())
    body = {"model": options.model, "prompt": "one two three", "ignore_eos": True}
    body |= {"max_tokens": options.tokens, "stream": True}
    # One connection a request: a Service balances connections, not requests.
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=options.url, timeout=300, limits=limits) as http:
        clients = [
            asyncio.create_task(client(http, body, told, done)) for _ in range(options.clients)
        ]
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        done.set()
        await asyncio.gather(*clients)
    times, fates = told
    print(json.dumps({"times": times, "requests": fates}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
