"""Print what each worker's sidecar reports, as one JSON object; the token comes on stdin.

Runs in the client pod, which reaches workers by their names in any cluster.
"""

import json
import sys

import httpx


def main() -> None:
    """Ask the workers that are named."""
    fleet, *workers = sys.argv[1:]
    headers = {"Authorization": f"Bearer {sys.stdin.read().strip()}"}
    reports = {}
    with httpx.Client(headers=headers, timeout=30) as http:
        for worker in workers:
            reply = http.get(f"http://{worker}.{fleet}-workers:8090/v1/rl/state")
            reports[worker] = reply.raise_for_status().json()
    print(json.dumps(reports))


if __name__ == "__main__":
    main()
