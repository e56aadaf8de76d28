"""LoRA adapters on real vLLM: declared, replaced under load, joined late, broken."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from dev.demo import stage
from dev.shell import Shell
from tests.e2e.kills import kill_engine_core
from tests.e2e.scenario import POD_S, Fleet, Trainer, restarts, until
from tests.e2e.test_trainer import drive

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]

ADAPTER = Path(__file__).parent / "adapter.py"
LORA, MODEL, POET = "lora", "qwen", "poet"
PATH = "/data/weights/poet-{version}"
PROMPT = [11 + place % 500 for place in range(60)]
"""Longer than a block of the prefix cache: what another adapter computed would show."""


class Poets:
    """Writes the adapter's versions onto the fleet's volume."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def write(self, version: str, seed: int, rank: int = 4) -> None:
        """Write a version whole."""
        place = PATH.format(version=version)
        words = ("/data/models/qwen", place, str(seed), str(rank))
        self._run(ADAPTER.read_text(), *words)

    def truncate(self, version: str) -> None:
        """Cut a version's tensors in half."""
        place = f"{PATH.format(version=version)}/adapter_model.safetensors"
        code = "import os, sys; f = sys.argv[1]; os.truncate(f, os.stat(f).st_size // 2)"
        self._run(code, place)

    def _run(self, code: str, *words: str) -> None:
        self._shell.kubectl("exec", "trainer", "--", "python3", "-c", code, *words)


@pytest.fixture(scope="module")
def poets(shell: Shell, trainer: Trainer) -> Poets:
    assert trainer is not None, "its pod has the volume"
    made = Poets(shell)
    for seed, version in enumerate(("v1", "v2"), 1):
        made.write(version, seed)
    return made


@pytest.fixture(scope="module")
def made_lora(shell: Shell, poets: Poets) -> Iterator[Fleet]:
    assert poets is not None, "the adapter lies there before it is asked for"
    shell.kubectl("apply", "-f", str(stage.DEMO / "adapters.yaml"))
    fleet = Fleet(shell, LORA)
    fleet.wait_synced(900)
    yield fleet
    shell.kubectl("delete", "rlf", LORA, "--wait=true")


@pytest.fixture
def lora(made_lora: Fleet) -> Fleet:
    """The fleet, two workers that serve step-0 and the adapter's v1."""
    made_lora.patch(weightVersion="step-0", replicas=2, adapters=[declared("v1")])
    # While one is still in its change all that serve do serve step-0.
    made_lora.wait_synced()
    wait_loaded(made_lora, "v1")
    return made_lora


def declared(version: str) -> dict[str, str]:
    return {"name": POET, "path": PATH, "version": version}


def wait_loaded(fleet: Fleet, version: str, timeout_s: int = 120) -> None:
    """Wait until every worker serves the adapter's version."""

    def is_so(status: dict[str, Any]) -> bool:
        (one,) = status.get("adapters") or [{}]
        return (one.get("version"), one.get("loadedWorkers")) == (version, status["replicas"])

    fleet.wait(is_so, timeout_s, f"{POET} {version} everywhere")


def addresses(fleet: Fleet) -> dict[str, str]:
    return {
        name: f"http://{pod['status']['podIP']}:8000"
        for name, pod in fleet.pods().items()
        if "deletionTimestamp" not in pod["metadata"]
    }


def ask(url: str, model: str, tokens: int = 8) -> tuple[int, ...]:
    """Ask one worker's engine greedily; raises what it does not answer well."""
    body = {
        "model": model,
        "prompt": PROMPT,
        "temperature": 0,
        "max_tokens": tokens,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    reply = httpx.post(f"{url}/v1/completions", json=body, timeout=120).raise_for_status().json()
    assert reply["model"] == model
    return tuple(reply["choices"][0]["token_ids"])


def answers(fleet: Fleet, model: str) -> set[tuple[int, ...]]:
    """Ask every worker; return the different answers."""
    return {ask(url, model) for url in addresses(fleet).values()}


def only(found: set[tuple[int, ...]]) -> tuple[int, ...]:
    (one,) = found
    return one


@contextmanager
def sampled(fleet: Fleet, tokens: int) -> Iterator[list[tuple[int, ...]]]:
    """Keep requests to the adapter in flight; the list holds every answer afterwards."""
    stop, urls = threading.Event(), list(addresses(fleet).values())
    seen: list[tuple[int, ...]] = []

    def sample(url: str) -> list[tuple[int, ...]]:
        found = []
        while not stop.is_set():
            found.append(ask(url, POET, tokens))
        # On a slow machine the one before may have begun before the swap.
        return [*found, ask(url, POET, tokens)]

    with ThreadPoolExecutor() as pool:
        clients = [pool.submit(sample, url) for url in urls for _ in range(3)]
        try:
            time.sleep(2)
            yield seen
            time.sleep(2)
        finally:
            stop.set()
        for client in clients:
            seen.extend(client.result())


@pytest.mark.release
def test_an_adapter_is_served_with_the_model_on_every_worker(lora: Fleet) -> None:
    model, poet = only(answers(lora, MODEL)), only(answers(lora, POET))

    assert poet != model
    assert [worker["adapters"] for worker in lora.status()["workers"]] == [["poet=v1"]] * 2
    listed = httpx.get(f"{next(iter(addresses(lora).values()))}/v1/models", timeout=30).json()
    assert {(card["id"], card["parent"]) for card in listed["data"]} == {
        (MODEL, None),
        (POET, MODEL),
    }


@pytest.mark.release
def test_a_swap_under_load_loses_no_request_and_mixes_none(lora: Fleet) -> None:
    tokens = 200
    pods = lora.identities()
    old = {ask(url, POET, tokens) for url in addresses(lora).values()}

    with sampled(lora, tokens) as seen:
        lora.patch(adapters=[declared("v2")])
        wait_loaded(lora, "v2")

    new = {ask(url, POET, tokens) for url in addresses(lora).values()}
    assert len(old) == len(new) == 1
    assert old != new
    # Each answer is all of the old adapter's or all of the new one's.
    assert set(seen) == old | new
    assert lora.identities() == pods


def test_an_adapter_outlives_a_change_of_weights(lora: Fleet) -> None:
    before = only(answers(lora, POET))

    lora.declare("step-1")
    lora.wait_serving("step-1")
    after = only(answers(lora, POET))
    lora.declare("step-0")
    lora.wait_serving("step-0")

    assert after != before
    assert only(answers(lora, POET)) == before


def test_a_late_joiner_and_a_restarted_engine_have_it_before_they_take_traffic(
    lora: Fleet, shell: Shell
) -> None:
    lora.declare("step-1")
    lora.wait_synced()
    model, before = only(answers(lora, MODEL)), only(answers(lora, POET))
    uid = lora.identities()["lora-1"][0]

    times = restarts(lora.pods()["lora-0"])
    kill_engine_core(shell, "lora-0")
    lora.wait_restarted("lora-0", times)
    lora.wait(lambda status: status["readyReplicas"] == 2, 300, "lora-0 back")
    assert (only(answers(lora, MODEL)), only(answers(lora, POET))) == (model, before)

    shell.kubectl("delete", "pod", "lora-1", "--wait=true")
    until(lambda: lora.identities().get("lora-1", (uid, 0))[0] != uid, POD_S, "another lora-1")
    lora.wait(lambda status: status["readyReplicas"] == 2, 300, "the new lora-1 ready")
    assert (only(answers(lora, MODEL)), only(answers(lora, POET))) == (model, before)


@pytest.mark.parametrize(
    ("version", "rank", "reason", "word"),
    [
        ("broken", 4, "CheckpointInvalid", "adapter_model.safetensors"),
        ("large", 16, "AdapterFailed", "max_lora_rank 8"),
    ],
)
def test_a_broken_adapter_is_named_and_serving_continues(
    lora: Fleet, poets: Poets, version: str, rank: int, reason: str, word: str
) -> None:
    before = only(answers(lora, POET))
    poets.write(version, seed=9, rank=rank)
    if version == "broken":
        poets.truncate(version)

    lora.patch(adapters=[declared(version)])
    lora.wait(
        lambda status: bool(status["adapters"]) and status["adapters"][0].get("reason") == reason,
        60,
        f"{reason} in status",
    )

    status = lora.status()
    assert word in status["adapters"][0]["message"]
    assert lora.condition("Degraded")["reason"] == "AdaptersFailed"
    lora.wait_for_events("AdapterFailed")
    assert status["readyReplicas"] == 2
    assert only(answers(lora, POET)) == before
    lora.declare("step-1")
    lora.wait_serving("step-1")


@pytest.fixture
def unowned(lora: Fleet) -> Iterator[Fleet]:
    """The fleet, whose trainer drives both weights and adapters at the sidecars."""
    lora.patch(weightVersion=None, adapters=[])
    lora.wait(lambda status: not any(w.get("adapters") for w in status["workers"]), 60, "no poet")
    yield lora
    sent_to_all(lora, "/v1/unload_lora_adapter", {"lora_name": MODEL})


def sent_to_all(fleet: Fleet, route: str, body: dict[str, str] | None = None) -> list[int]:
    """Send every worker's sidecar what a trainer sends; returns the statuses."""
    bearer = {"authorization": f"Bearer {fleet.token()}"}
    sidecars = [url.replace(":8000", ":8090") for url in addresses(fleet).values()]
    calls = (httpx.post(url + route, json=body, headers=bearer, timeout=120) for url in sidecars)
    return [reply.status_code for reply in calls]


def test_prime_rl_s_adapter_answers_under_the_model_s_own_name(
    unowned: Fleet, poets: Poets
) -> None:
    base = only(answers(unowned, MODEL))

    assert sent_to_all(unowned, "/load_lora_adapter", at("v1") | {"lora_name": MODEL}) == [200] * 2
    first = only(answers(unowned, MODEL))
    assert sent_to_all(unowned, "/pause?mode=keep&clear_cache=false") == [200] * 2
    assert (
        sent_to_all(unowned, "/update_weights", {"weight_dir": at("v2")["lora_path"]}) == [200] * 2
    )
    assert sent_to_all(unowned, "/resume") == [200] * 2
    second = only(answers(unowned, MODEL))
    poets.write("cut", seed=7)
    poets.truncate("cut")
    assert (
        sent_to_all(unowned, "/update_weights", {"weight_dir": at("cut")["lora_path"]}) == [422] * 2
    )

    assert len({base, first, second}) == 3
    assert sent_to_all(unowned, "/resume") == [409] * 2
    assert only(answers(unowned, MODEL)) == second
    listed = httpx.get(f"{next(iter(addresses(unowned).values()))}/v1/models", timeout=30).json()
    assert [(card["id"], card["parent"]) for card in listed["data"]] == [(MODEL, None)]
    assert sent_to_all(unowned, "/v1/unload_lora_adapter", {"lora_name": MODEL}) == [200] * 2
    assert only(answers(unowned, MODEL)) == base


def test_a_replaced_pod_begins_with_the_weights_and_the_adapter_of_a_trainer(
    unowned: Fleet, shell: Shell
) -> None:
    rollout = unowned.status()["rollout"]["id"]
    for worker in ("lora-0", "lora-1"):
        drive(unowned, worker, "step-2")
    assert sent_to_all(unowned, "/load_lora_adapter", at("v1") | {"lora_name": MODEL}) == [200] * 2
    before = only(answers(unowned, MODEL))
    uid = unowned.identities()["lora-1"][0]

    shell.kubectl("delete", "pod", "lora-1", "--wait=true")
    until(lambda: unowned.identities().get("lora-1", (uid, 0))[0] != uid, POD_S, "another lora-1")
    unowned.wait(lambda status: status["readyReplicas"] == 2, 300, "the new lora-1 ready")

    assert unowned.versions() == {"lora-0": "step-2", "lora-1": "step-2"}
    assert only(answers(unowned, MODEL)) == before
    assert unowned.status()["rollout"]["id"] == rollout


def test_a_rollout_proves_the_weights_beneath_an_adapter_of_the_model_s_name(
    unowned: Fleet,
) -> None:
    address = next(iter(addresses(unowned).values())).replace(":8000", ":8090")
    bearer = {"authorization": f"Bearer {unowned.token()}"}
    body = at("v1") | {"lora_name": MODEL}
    httpx.post(
        f"{address}/load_lora_adapter", json=body, headers=bearer, timeout=120
    ).raise_for_status()
    assert len(answers(unowned, MODEL)) == 2

    unowned.declare("step-1")
    unowned.wait_serving("step-1")

    unowned.wait_synced()
    assert unowned.status()["readyReplicas"] == 2


def at(version: str) -> dict[str, str]:
    return {"lora_path": PATH.format(version=version)}


def test_an_adapter_that_is_removed_is_no_longer_served(lora: Fleet) -> None:
    lora.patch(adapters=[])
    lora.wait(
        lambda status: not any(worker.get("adapters") for worker in status["workers"]),
        60,
        "no adapter anywhere",
    )

    for url in addresses(lora).values():
        with pytest.raises(httpx.HTTPStatusError) as caught:
            ask(url, POET)
        assert caught.value.response.status_code == httpx.codes.NOT_FOUND
        assert json.loads(caught.value.response.text)["error"]["param"] == "model"
