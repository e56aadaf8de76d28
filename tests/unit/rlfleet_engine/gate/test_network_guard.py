"""What the network may see: a table of paths, tricks included."""

from typing import Any

import pytest

from rlfleet_engine.gate.network_guard import Route, is_local, route_of

GATED = [
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/chat/completions/tokens",
    "/v1/responses/resp_1-a/cancel",
    "/v1/realtime",
    "/inference/v1/generate",
    "/tokenize",
    "/detokenize",
]
ALWAYS = ["/health", "/metrics", "/tokenizer_info", "/version", "/v1/models"]
CONTROL = [
    "/",
    "",
    "/pause",
    "/resume",
    "/is_paused",
    "/collective_rpc",
    "/reset_prefix_cache",
    "/update_weights",
    "/sleep",
    "/abort_requests",
    "/server_info",
    "/docs",
    "/openapi.json",
    "/rlfleet/gate",
    "/rlfleet/exit",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/inference/v1/other",
    "/inference",
    "/v2/rerank",
    "/invocations",
    "/ping",
    "/adapters",
    "/score",
    "/inference/v1/abort_requests",
    "/metrics/",
    "/metricsx",
    "/static/swagger-ui.css",
    "/v1",
    "/v11/x",
]
TRICKS = [
    "//v1/completions",
    "/v1//completions",
    "/v1/completions/",
    "/health/",
    "/v1/../pause",
    "/v1/./completions",
    "/v1/..",
    "/v1/%2e%2e/pause",
    "/v1/%2E%2E/pause",
    "/v1/completions%00",
    "/%76%31/completions",
    "/v1/load_lora_adapter%20",
    "/v1/completions;x=1",
    "/health;/../pause",
    "/v1/completions?x",
    "/v1/completions#x",
    "/v1\\completions",
    "/V1/completions",
    "/HEALTH",
    "/v1/Load_LoRA_Adapter",
    "/v1/UNLOAD_LORA_ADAPTER",
    "/v1/load_lora_adapter/",
    "http://host/v1/completions",
    "*",
    "/v1/\u00e9",
    "/v1/a b",
    "/v1/\n",
    "/v1/completions\n",
    "/health\n",
    "health",
]


@pytest.mark.parametrize("path", GATED)
def test_what_reads_the_model_is_gated(path: str) -> None:
    assert route_of(path.encode()) is Route.GATED


@pytest.mark.parametrize("path", ALWAYS)
def test_health_and_metrics_are_answered_whatever_the_gate_says(path: str) -> None:
    assert route_of(path.encode()) is Route.ALWAYS


@pytest.mark.parametrize("path", CONTROL + TRICKS)
def test_anything_else_is_for_this_pod_alone(path: str) -> None:
    assert route_of(path.encode()) is Route.CONTROL


def test_liveness_is_the_extension_s_own() -> None:
    assert route_of(b"/liveness") is Route.LIVENESS
    assert route_of(b"/liveness/") is Route.CONTROL


@pytest.mark.parametrize("path", [*GATED, *ALWAYS, "/liveness", "/v1/pause"])
def test_under_a_root_path_nothing_is_a_data_route(path: str) -> None:
    """With ``--root-path /v1`` vLLM takes /v1/pause for /pause."""
    assert route_of(path.encode(), "/v1") is Route.CONTROL


PEERS: dict[str, tuple[Any, bool]] = {
    "loopback": (("127.0.0.1", 4000), True),
    "a mesh's proxy": (("127.0.0.6", 4000), False),
    "another address of loopback": (("127.9.8.7", 4000), False),
    "IPv6 loopback": (("::1", 4000), True),
    "mapped loopback": (("::ffff:127.0.0.1", 4000), True),
    "a list": (["127.0.0.1", 4000], True),
    "a pod": (("10.244.0.7", 4000), False),
    "a mapped pod": (("::ffff:10.244.0.7", 4000), False),
    "nobody": (None, False),
    "an empty address": (("", 0), False),
    "a name": (("localhost", 0), False),
    "an empty pair": ((), False),
    "nonsense": ((None, 0), False),
    "127 elsewhere": (("10.127.0.0", 0), False),
    "almost loopback": (("127.0.0.1.evil", 0), False),
}


OWN = ("127.0.0.1", 8000)


@pytest.mark.parametrize(("peer", "expected"), PEERS.values(), ids=PEERS)
def test_only_loopback_peers_are_in_this_pod(peer: object, expected: bool) -> None:  # noqa: FBT001
    assert is_local(peer, OWN, [(b"host", b"x")]) is expected


@pytest.mark.parametrize(("end", "expected"), PEERS.values(), ids=PEERS)
def test_only_at_loopback_this_pod_is_called_by_itself(end: object, expected: bool) -> None:  # noqa: FBT001
    is_loopback = expected or end in (("127.0.0.6", 4000), ("127.9.8.7", 4000))

    assert is_local(OWN, end, [(b"host", b"x")]) is is_loopback


@pytest.mark.parametrize(
    "header",
    [
        b"x-forwarded-for",
        b"forwarded",
        b"x-real-ip",
        b"via",
        b"x-request-id",
        b"x-envoy-attempt-count",
        b"l5d-dst-canonical",
    ],
)
def test_a_peer_that_forwards_is_not_in_this_pod(header: bytes) -> None:
    assert not is_local(OWN, OWN, [(header, b"127.0.0.1")])
