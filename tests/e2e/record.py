"""Closed-loop clients that record each request they send, until standard input ends.

Runs in the demo's client pod; needs nothing but Python and httpx. A request that was
aborted is sent again under its id until it has ended by itself. Prints a line once each
client has an answer, and the records as JSON on the last line.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import httpx

PROMPT = [11 + place % 500 for place in range(300)]
"""Longer than a block of the prefix cache: a stale cache would show in the answers."""
HEAD = 4
LAST = 16
Record = dict[str, Any]


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def spans(choice: Record, headers: Mapping[str, str]) -> list[tuple[str, int, int]]:
    """Return which version made which tokens.

    An older release names the first and the last version alone: where it changed is not known.
    """
    if "weight_versions" in choice:
        told = choice["weight_versions"] or ()
        return [(span["version"], span["start"], span["end"]) for span in told]
    first, last = (headers[f"x-rlfleet-version{end}"] for end in ("", "-end"))
    made = len(choice["token_ids"])
    return [(last, 0, made)] if first == last else [(first, 0, 0), (last, 0, made)]


async def attempt(http: httpx.AsyncClient, name: str, tokens: int) -> Record:
    """Send a request once and return its record."""
    sampling = {"max_tokens": tokens, "ignore_eos": True, "temperature": 0}
    record: Record = {"id": name, "sent": time.monotonic(), "wanted": tokens}
    try:
        body = {"token_ids": PROMPT, "sampling_params": sampling}
        reply = await http.post("/inference/v1/generate", json=body)
        choice = reply.raise_for_status().json()["choices"][0]
        record |= {
            "finish": choice["finish_reason"],
            "tokens": len(choice["token_ids"]),
            "head": choice["token_ids"][:HEAD],
            "spans": spans(choice, reply.headers),
        }
    except (httpx.HTTPError, KeyError, ValueError) as error:
        record["error"] = f"{type(error).__name__}: {error}"[:120]
        await asyncio.sleep(0.2)
    return record | {"ended": time.monotonic()}


async def client(
    http: httpx.AsyncClient, options: argparse.Namespace, number: int, records: list[Record]
) -> None:
    """Send one request after the other, and a short one after the word to end."""
    await asyncio.sleep(number * options.stagger)
    place, is_last = 0, False
    while not is_last:
        is_last = options.ended.done()
        place += 1
        while True:
            tokens = min(options.tokens, LAST) if is_last else options.tokens
            record = await attempt(http, f"{number}/{place}", tokens)
            records.append(record)
            if record.get("finish") != "abort":
                break
        await asyncio.sleep(options.rest)


async def report_begun(options: argparse.Namespace, records: list[Record]) -> None:
    """Print a line once as many answers as clients are there."""
    while len(records) < options.clients:  # noqa: ASYNC110 - a script of one page
        await asyncio.sleep(0.05)
    say("begun")


async def main() -> None:
    """Run the clients."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--stagger", type=float, default=0.1, help="seconds between their starts")
    parser.add_argument("--rest", type=float, default=0, help="seconds between two requests")
    options = parser.parse_args()
    options.ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    records: list[Record] = []
    # One connection a request: a Service balances connections, not requests.
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=options.url, timeout=300, limits=limits) as http:
        work = [client(http, options, number, records) for number in range(options.clients)]
        await asyncio.gather(report_begun(options, records), *work)
    say(json.dumps(records))


if __name__ == "__main__":
    asyncio.run(main())
