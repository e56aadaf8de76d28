"""The fleet of examples/prime-rl and prime-rl's three files mean the same names and paths.

That prime-rl takes the files was seen with its own models, which need Python 3.12: README.md there.
"""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlfleet_operator.crd.fleet_spec import FleetSpec

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "prime-rl"
FLEET = yaml.safe_load((EXAMPLE / "fleet.yaml").read_text())
SPEC = FleetSpec.model_validate(FLEET["spec"])
NAME = FLEET["metadata"]["name"]


def parsed(name: str) -> dict[str, Any]:
    return tomllib.loads((EXAMPLE / name).read_text())


@pytest.mark.parametrize("name", ["orch.toml", "train.toml"])
def test_model_and_transport_are_the_fleet_s(name: str) -> None:
    config = parsed(name)

    assert config["model"]["name"] == SPEC.model.name
    assert config["weight_broadcast"] == {"type": "filesystem"}
    assert config["rollout_transport"] == {"type": "filesystem"}


@pytest.mark.parametrize("name", ["orch.toml", "train.toml"])
def test_the_output_directory_is_the_one_above_broadcasts(name: str) -> None:
    assert SPEC.weights is not None
    command = (EXAMPLE / name).read_text().splitlines()[0]
    (_, directory) = command.split("--output-dir ")

    assert SPEC.weights.path == f"{directory}/broadcasts/{{version}}"
    assert directory.startswith(f"{SPEC.weights.mount_path}/")


def test_samples_go_to_the_fleet_and_changes_to_the_operator() -> None:
    client = parsed("orch.toml")["model"]["client"]

    assert client["base_url"] == f"http://{NAME}.default.svc:8000/v1"
    assert client["admin_base_url"] == [
        f"http://rlfleet.rlfleet-system.svc:8082/fleets/default/{NAME}"
    ]
    assert SPEC.weight_version is None


def test_the_environment_server_is_the_one_of_the_orchestrator_s_source() -> None:
    (source,) = parsed("orch.toml")["train"]["source"]

    assert parsed("env.toml") == {"serve": source["serve"], "env": source["env"]}


def test_logprobs_are_those_of_prime_rl_s_own_server() -> None:
    assert "--logprobs-mode=processed_logprobs" in SPEC.engine.args


def test_the_run_does_not_stay_at_one_episode_at_once() -> None:
    """Prime-rl's controller begins at one, and the operator's missing metrics leave it there."""
    orch = parsed("orch.toml")

    assert orch["concurrency"] == {"initial_inflight": orch["batch_size"]}
