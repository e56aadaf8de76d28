"""Every route that a listed client calls at a worker's control address is answered.

The table is made from the clients' own code: prime-rl's utils/client.py, TRL 1.16's
experimental/async_grpo/vllm_client.py, SkyRL's remote_inference_client.py, AReaL 1.0.4's
engine/vllm_remote.py, and vLLM 0.32's distributed/weight_transfer/clients.py.
"""

import json

import pytest

from tests.contract.subject import Subject
from tests.fakes.behaviour import Behaviour
from tests.fakes.worker import Worker

SLOW_S = 5.0
"""Longer than a look at an engine may take."""
UNKNOWN = (
    "/init_communicator/",
    "/update_weights_from_tensor",
    "/update_weights_ipc",
    "/fetch_weights",
    "/v1/chat/completions",
)
CLIENTS: dict[str, tuple[str, ...]] = {
    "prime-rl": (
        "GET /health",
        "GET /v1/models",
        "GET /metrics",
        "POST /pause",
        "POST /update_weights",
        "POST /resume",
        "POST /init_broadcaster",
        "POST /load_lora_adapter",
        "POST /v1/unload_lora_adapter",
    ),
    "TRL's AsyncGRPO": (
        "GET /health",
        "GET /v1/models",
        "GET /server_info",
        "GET /get_world_size",
        "POST /pause",
        "POST /resume",
        "POST /init_weight_transfer_engine",
        "POST /start_weight_update",
        "POST /update_weights",
        "POST /finish_weight_update",
        "POST /v1/load_lora_adapter",
        "POST /v1/unload_lora_adapter",
    ),
    "AReaL": (
        "GET /health",
        "POST /areal_pause_generation",
        "POST /areal_update_weights",
        "POST /areal_continue_generation",
        "POST /areal_init_weights_update_group",
        "POST /v1/load_lora_adapter",
    ),
    "vLLM's HTTPVLLMWeightSyncClient": (
        "POST /init_weight_transfer_engine",
        "POST /shutdown_weight_transfer_engine",
        "POST /start_weight_update",
        "POST /update_weights",
        "POST /finish_weight_update",
    ),
    "SkyRL": (
        "GET /health",
        "GET /get_world_size",
        "POST /pause",
        "POST /resume",
        "POST /sleep",
        "POST /wake_up",
        "POST /reset_prefix_cache",
        "POST /init_weight_transfer_engine",
        "POST /update_weights",
        "POST /collective_rpc",
        "POST /skyrl/v1/load_lora_adapter",
        "POST /v1/unload_lora_adapter",
    ),
}


@pytest.mark.parametrize("client", CLIENTS)
async def test_every_route_that_a_client_calls_is_answered(subject: Subject, client: str) -> None:
    await subject.serve("step-1")
    for call in CLIENTS[client]:
        method, _, path = call.partition(" ")

        # A body that says nothing: what counts is that the route is there.
        reply = await subject.admin.request(method, path, json={} if method == "POST" else None)

        assert reply.status_code not in {404, 405}, call


async def test_only_the_configuration_that_trl_reads_is_returned(
    subject: Subject,
) -> None:
    told = (await subject.admin.get("/server_info", params={"config_format": "json"})).json()
    text = (await subject.admin.get("/server_info")).json()

    config = told["vllm_config"]
    assert config["model_config"]["dtype"] == "torch.bfloat16"
    assert config["model_config"]["logprobs_mode"] == "raw_logprobs"
    assert config["lora_config"]["max_lora_rank"] == 8
    assert config["parallel_config"]["data_parallel_size"] == 1
    assert config["weight_transfer_config"] is None
    assert (told["vllm_env"], told["system_env"]) == ({}, {})
    assert isinstance(text["vllm_config"], str)
    for answer in (told, text):
        assert "secret" not in json.dumps(answer)
        assert "10.0.0.1" not in json.dumps(answer)


async def test_trl_gets_the_configuration_of_an_engine_that_examines_its_environment(
    fake: Worker, subject: Subject
) -> None:
    fake.engine.behaviour = Behaviour(info_s=SLOW_S)

    reply = await subject.admin.get("/server_info", params={"config_format": "json"})

    assert reply.status_code == 200
    assert reply.json()["vllm_config"]["model_config"]["dtype"] == "torch.bfloat16"


async def test_an_unknown_route_says_what_to_do_instead(subject: Subject) -> None:
    for path in UNKNOWN:
        reply = await subject.admin.post(path, json={})

        assert reply.status_code == 404
        message = reply.json()["error"]["message"]
        assert message.startswith(f"unknown route {path}; ")
        assert "/update_weights" in message
        assert "port 8000" in message
