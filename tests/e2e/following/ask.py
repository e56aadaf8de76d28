"""Closed-loop clients that record each reply with its log probabilities.

Runs in a pod next to the fleet; needs nothing but Python and httpx. Prints the prompts as a JSON
line, then a line for each request, until standard input ends.
"""

import argparse
import asyncio
import json
import sys
import time
from typing import Any

import httpx

PROMPTS = (
    "one two three",
    "ten nine eight",
    "the quick brown fox",
    "gradient descent walks downhill one two",
)
"""Most have the trainer's words, whose log probabilities each version moves."""
_REST_AFTER_ERROR_S = 0.2
Record = dict[str, Any]


def say(record: Record) -> None:
    """Print a record at once."""
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


async def attempt(http: httpx.AsyncClient, prompt: list[int], tokens: int) -> Record:
    """Send a request once and return what came."""
    sampling = {"max_tokens": tokens, "ignore_eos": True, "temperature": 0, "logprobs": 0}
    body = {"token_ids": prompt, "sampling_params": sampling}
    try:
        reply = await http.post("/inference/v1/generate", json=body)
        choice = reply.raise_for_status().json()["choices"][0]
        return {
            "finish": choice["finish_reason"],
            "tokens": choice["token_ids"],
            "logprobs": [entry["logprob"] for entry in choice["logprobs"]["content"]],
            "spans": [[s["version"], s["start"], s["end"]] for s in choice["weight_versions"]],
        }
    except (httpx.HTTPError, KeyError, TypeError, ValueError) as error:
        await asyncio.sleep(_REST_AFTER_ERROR_S)
        return {"error": f"{type(error).__name__}: {error}"[:200]}


async def client(
    http: httpx.AsyncClient, options: argparse.Namespace, prompts: list[list[int]], number: int
) -> None:
    """Send one request after the other."""
    turn = number
    await asyncio.sleep(number * options.rest / options.clients)
    while not options.ended.done():
        place = turn % len(prompts)
        record: Record = {"prompt": place, "wanted": options.tokens, "sent": time.monotonic()}
        record |= await attempt(http, prompts[place], options.tokens)
        say(record | {"ended": time.monotonic()})
        turn += 1
        await asyncio.sleep(options.rest)


async def ids(http: httpx.AsyncClient, model: str, prompt: str) -> list[int]:
    """Return a prompt's tokens."""
    reply = await http.post("/tokenize", json={"model": model, "prompt": prompt})
    found: list[int] = reply.raise_for_status().json()["tokens"]
    return found


async def main() -> None:
    """Run the clients."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--model", default="qwen")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--rest", type=float, default=0.4, help="seconds between two requests")
    options = parser.parse_args()
    options.ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    # One connection a request: a Service balances connections, not requests.
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=options.url, timeout=300, limits=limits) as http:
        prompts = [await ids(http, options.model, text) for text in PROMPTS]
        say({"prompts": prompts})
        await asyncio.gather(
            *(client(http, options, prompts, number) for number in range(options.clients))
        )


if __name__ == "__main__":
    asyncio.run(main())
