"""Closed-loop clients that ask two engines for the same things, by turns.

Runs wherever it reaches both: in the client pod, or on one machine with two servers. The
engines are never loaded at once. Prints a line of JSON for each block: how long it took
and how long each request did. A request that is not answered whole ends it all.
"""

import argparse
import asyncio
import gc
import json
import os
import time
from collections.abc import AsyncIterator
from itertools import chain
from typing import Any

import aiohttp

TURNS = "ABBABAAB"
"""A is the plain engine. Two by two they make pairs, in which each goes first equally often."""
_TOKENS = 16
_PROMPT = list(range(300, 364))
_TEXT = "the quick brown fox jumps over the lazy dog while the learning rate decides the stride"
_MESSAGES = [{"role": "user", "content": _TEXT}]
_DONE = b"data: [DONE]"
_SPIN_S = 1.2
"""The worker that was asked before spins for a second, on the core that both have."""


def routes(model: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return what is asked: samplers' bodies, with what they ask of each token."""
    sampled: dict[str, Any] = {"max_tokens": _TOKENS, "temperature": 1.0, "ignore_eos": True}
    chat: dict[str, Any] = {
        "model": model,
        "messages": _MESSAGES,
        "logprobs": True,
        "return_token_ids": True,
    }
    chat |= sampled
    generate: dict[str, Any] = {"model": model, "token_ids": _PROMPT, "cache_salt": "7"}
    generate |= {"sampling_params": {**sampled, "logprobs": 1, "skip_special_tokens": False}}
    return {
        "chat": ("/v1/chat/completions", chat),
        "chat, streamed": ("/v1/chat/completions", {**chat, "stream": True}),
        "generate": ("/inference/v1/generate", generate),
        "generate, streamed": ("/inference/v1/generate", {**generate, "stream": True}),
        "tokenize": ("/tokenize", {"model": model, "messages": _MESSAGES}),
    }


async def ask(http: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> float:
    """Send one request; return how long it took until its last byte, in seconds."""
    begun = time.perf_counter()
    async with http.post(path, json=body) as reply:
        content = await reply.read()
    took = time.perf_counter() - begun
    if reply.status != 200 or (body.get("stream") and _DONE not in content):
        raise RuntimeError(f"{path} answered {reply.status} {content[-500:]!r}")
    return took


async def block(
    url: str, asked: tuple[str, dict[str, Any]], clients: int, rounds: int
) -> tuple[float, list[float]]:
    """Have each client send so many requests; return the seconds of all and of each."""
    path, body = asked

    async def client() -> list[float]:
        return [await ask(http, path, body) for _ in range(rounds)]

    everybody = range(clients)
    await asyncio.sleep(_SPIN_S)
    # A new session, because the server may close an idle connection at any moment.
    async with _session(url) as http:
        # A round before it opens the connections and wakes the engine.
        await asyncio.gather(*(ask(http, path, body) for _ in everybody))
        begun = time.perf_counter()
        found = await asyncio.gather(*(client() for _ in everybody))
        return time.perf_counter() - begun, list(chain.from_iterable(found))


async def cell(
    asked: tuple[str, dict[str, Any]], clients: int, options: argparse.Namespace
) -> AsyncIterator[dict[str, Any]]:
    """Measure one route with so many clients: short blocks, as many as there is time for."""
    urls = {"A": options.plain, "B": options.extended}
    tried = [(await block(url, asked, clients, rounds=2))[0] for url in urls.values()]
    round_s = sum(tried) / 4
    rounds = max(1, round(options.block_s / round_s))
    block_s = _SPIN_S + (1 + rounds) * round_s
    repeats = max(1, round(options.cell_s / (len(TURNS) * block_s)))
    gc.collect()
    for turn in TURNS * repeats:
        seconds, latencies = await block(urls[turn], asked, clients, rounds)
        yield {
            "clients": clients,
            "is_extended": turn == "B",
            "seconds": round(seconds, 4),
            "latencies_ms": [round(one * 1000, 2) for one in latencies],
        }


def _session(url: str) -> aiohttp.ClientSession:
    # vLLM's server closes what has been idle for 5 s, also while a request is on its way.
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=2)
    timeout = aiohttp.ClientTimeout(total=300)
    return aiohttp.ClientSession(url, connector=connector, timeout=timeout)


async def main() -> None:
    """Print the blocks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plain", help="URL of the engine without the extension")
    parser.add_argument("extended", help="URL of the engine with it")
    parser.add_argument("model")
    parser.add_argument("--routes", nargs="+", help="only these")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument(
        "--cell-s",
        type=float,
        default=25,
        help="seconds per route and number of clients (%(default)s)",
    )
    parser.add_argument("--block-s", type=float, default=1.5)
    parser.add_argument("--cores", default="", help="CPU cores to run on, comma-separated (any)")
    options = parser.parse_args()
    if options.cores:
        os.sched_setaffinity(0, set(map(int, options.cores.split(","))))
    for name, asked in routes(options.model).items():
        if options.routes and name not in options.routes:
            continue
        for clients in options.clients:
            async for found in cell(asked, clients, options):
                print(json.dumps({"route": name, **found}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
