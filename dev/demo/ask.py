"""Send the same greedy prompt to workers, each by its own name, and print what they answer.

Runs in the demo's client pod; needs nothing but Python and httpx.
"""

import json
import sys

import httpx

PROMPT = "the quick brown fox"


def main() -> None:
    """Ask every worker named on the command line; print one JSON object a line."""
    fleet, *workers = sys.argv[1:]
    # A worker's name may reach DNS a moment after the worker is ready.
    http = httpx.Client(transport=httpx.HTTPTransport(retries=6), timeout=60)
    for worker in workers:
        url = f"http://{worker}.{fleet}-workers:8000/v1/completions"
        body = {
            "model": fleet,
            "prompt": PROMPT,
            "temperature": 0,
            "max_tokens": 12,
            "return_token_ids": True,
        }
        choice = http.post(url, json=body).raise_for_status().json()["choices"][0]
        print(json.dumps({"worker": worker, "tokens": choice["token_ids"]}))


if __name__ == "__main__":
    main()
