"""One example for each route of the fleet API, in an order in which they can be played.

docs/reference/http.md shows them, and tests/integration/test_fleet_examples.py plays them
against a fleet of two workers whose spec names no version.
"""

from dev.docs.http_example import Example

EXAMPLES: tuple[Example, ...] = (
    Example("GET /v1/rl/workers", {"protocol_version": 1}, has_more=True),
    Example(
        "POST /v1/rl/update_weights",
        {"status": "ok", "message": "2 of 2 workers proved step-1", "version": "step-1"},
        {"version": "step-1"},
        has_more=True,
    ),
    Example(
        "GET /v1/rl/state",
        {"ready": True, "paused": False, "desired_version": "step-1", "applied_version": "step-1"},
        has_more=True,
    ),
    Example(
        "POST /v1/rl/pause",
        {"status": "ok", "paused": True},
        {"mode": "keep", "ttl_s": 600},
        has_more=True,
    ),
    Example("POST /v1/rl/flush_cache", {"status": "ok", "paused": True}, has_more=True),
    Example(
        "POST /v1/rl/update_weights",
        {"status": "ok", "version": "step-2"},
        {"weight_dir": "/weights/step-2", "timeout_s": 300},
        has_more=True,
    ),
    Example(
        "POST /v1/rl/update_weights",
        {
            "status": "ok",
            "message": "nothing was loaded: weight_dir names no directory",
            "version": "step-2",
        },
        {"weight_dir": None},
        has_more=True,
    ),
    Example("POST /v1/rl/resume", {"status": "ok", "paused": False}, has_more=True),
)
