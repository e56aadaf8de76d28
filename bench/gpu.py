"""One worker on this machine's GPU, without Kubernetes: python3 -m bench.gpu --folder DIRECTORY.

Makes a random model and two steps of it in the directory, which should be in memory. Starts vLLM
and the sidecar with the commands of a worker's pod, and changes the weights back and forth, first
without requests, then while clients ask. Prints a JSON line for each change: the report's timings
in seconds, the evidence of its proof, and how long vLLM's bare reload of the same files takes.
Needs vLLM and, on PYTHONPATH, this repository and its sidecar.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from bench import gpu_model
from bench.pods import bare
from rlfleet_contract import paths
from rlfleet_contract.worker.report import WorkerReport

STEPS = ("step-1", "step-2")
NAME = "model"
_ENGINE = f"http://127.0.0.1:{paths.ENGINE_PORT}"
_SIDECAR = f"http://127.0.0.1:{paths.ADMIN_PORT}"
_TOKEN = uuid4().hex
_UP_S = 900
_CALL_S = 300
_PAUSE_S = 0.3
_END_S = 60


def main() -> None:
    """Make, start, change and measure."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="for the model and its steps")
    parser.add_argument("--size", choices=gpu_model.SIZES, default="1.7b", help="as Qwen3's")
    parser.add_argument("--changes", type=int, default=6, help="with and without clients")
    parser.add_argument("--clients", type=int, default=8, help="that ask (default 8)")
    parser.add_argument("arguments", nargs="*", help="more arguments of vLLM, after --")
    options = parser.parse_args()
    folder = options.folder
    gpu_model.made(options.size, {folder / "base": 0, _step(folder, 0): 1, _step(folder, 1): 2})
    with _worker(folder, options.arguments) as engine:
        _until_open(engine)
        for clients in (0, options.clients):
            with _clients(clients) as replies:
                for number in range(options.changes):
                    time.sleep(_PAUSE_S)
                    row = _changed(STEPS[number % len(STEPS)])
                    if not clients:
                        row["bare_s"] = _bare(_step(folder, number))
                    _say({"clients": clients} | row)
                time.sleep(_PAUSE_S)
            _say({"clients": clients, "replies": dict(replies)})


def _step(folder: Path, number: int) -> Path:
    return folder / "weights" / STEPS[number % len(STEPS)]


@contextlib.contextmanager
def _worker(folder: Path, more: Sequence[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Start the commands of both containers; yields the engine's process."""
    (folder / "token").write_text(_TOKEN)
    for made in ("state", "cache"):
        (folder / made).mkdir(exist_ok=True)
    ours = os.environ | {  # noqa: TID251 - what a program that it starts needs too
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "RLFLEET_MODEL_NAME": NAME,
        "RLFLEET_MODEL_PATH": f"{folder}/base",
        "RLFLEET_TOKEN_FILE": f"{folder}/token",
        "RLFLEET_STATE_DIR": f"{folder}/state",
        "RLFLEET_WEIGHTS_PATH": f"{folder}/weights/{{version}}",
        "RLFLEET_CACHE_DIR": f"{folder}/cache",
        "RLFLEET_CACHE_SPARE": "0",
    }
    python = [sys.executable, "-m"]
    engine = [*python, "rlfleet_engine.vllm.serve", *_arguments(folder), *more]
    with contextlib.ExitStack() as stack:
        started = []
        for name, words in (("engine", engine), ("sidecar", [*python, "rlfleet_sidecar"])):
            log = stack.enter_context((folder / f"{name}.log").open("w"))
            process = subprocess.Popen(words, env=ours, stdout=log, stderr=log)
            stack.callback(process.wait, _END_S)
            stack.callback(process.terminate)
            started.append(process)
        yield started[0]


def _arguments(folder: Path) -> list[str]:
    """Return what the operator gives an engine."""
    return [
        f"--model={folder}/base",
        f"--served-model-name={NAME}",
        "--host=127.0.0.1",
        f"--port={paths.ENGINE_PORT}",
        "--load-format=safetensors",
        "--middleware=rlfleet_engine.middleware.Extension",
        "--worker-extension-cls=rlfleet_engine.worker.ReloadExtension",
        "--enable-scale-out",
        "--disable-uvicorn-access-log",
    ]


def _until_open(engine: "subprocess.Popen[bytes]") -> None:
    """Wait for the engine and its self-test, and have it serve its base weights."""
    begun = time.monotonic()
    while True:
        with contextlib.suppress(httpx.HTTPError):
            if _sent(paths.BASE_VERSION)[0].is_success:
                _say({"up_s": round(time.monotonic() - begun, 1)})
                return
        if engine.poll() is not None or time.monotonic() - begun > _UP_S:
            raise TimeoutError("the worker is not up: see engine.log and sidecar.log")
        time.sleep(1)


def _changed(version: str) -> dict[str, Any]:
    """Change the weights; return what the worker reports."""
    reply, prepare_s = _sent(version)
    if reply.is_error:
        return {"version": version, "error": reply.json()}
    report = WorkerReport.model_validate_json(reply.content)
    change, proof = report.last_change, report.proof
    return {
        "version": version,
        "stage": report.stage,
        "prepare_s": round(prepare_s, 3),
        "timings": None if change is None else change.timings.model_dump(),
        "verified_by": [] if proof is None else list(proof.verified_by),
        "read_share": None if proof is None else proof.read_share,
    }


def _sent(version: str) -> tuple[httpx.Response, float]:
    """Prepare and update; return the update's reply and the seconds of the prepare."""
    command = {"operation": uuid4().hex, "version": version}
    headers = {"authorization": f"Bearer {_TOKEN}"}
    with httpx.Client(base_url=_SIDECAR, headers=headers, timeout=_CALL_S) as sidecar:
        begun = time.perf_counter()
        sidecar.post(paths.PREPARE_PATH, json=command)
        prepare_s = time.perf_counter() - begun
        return sidecar.post(paths.UPDATE_WEIGHTS_PATH, json=command), prepare_s


def _bare(directory: Path) -> float:
    """Return how long vLLM's own reload of the same files takes, in seconds."""
    bare.read(directory)
    body = {"method": "reload_weights", "kwargs": {"weights_path": str(directory)}}
    begun = time.perf_counter()
    httpx.post(f"{_ENGINE}/collective_rpc", json=body, timeout=_CALL_S).raise_for_status()
    return round(time.perf_counter() - begun, 4)


@contextlib.contextmanager
def _clients(number: int) -> Iterator[Counter[str]]:
    """Ask all the time; yields the replies, by status and the versions that they name."""
    replies: Counter[str] = Counter()
    is_over = threading.Event()
    lock = threading.Lock()

    def ask(seed: int) -> None:
        body = {"model": NAME, "prompt": [11, 12, 13 + seed], "max_tokens": 64, "ignore_eos": True}
        with httpx.Client(base_url=_ENGINE, timeout=_CALL_S) as engine:
            while not is_over.is_set():
                kind = _kind_of(engine, body)
                with lock:
                    replies[kind] += 1

    with ThreadPoolExecutor(number + 1) as pool:
        for seed in range(number):
            pool.submit(ask, seed)
        try:
            yield replies
        finally:
            is_over.set()


def _kind_of(engine: httpx.Client, body: dict[str, Any]) -> str:
    try:
        reply = engine.post("/v1/completions", json=body)
    except httpx.HTTPError as error:
        time.sleep(_PAUSE_S)
        return type(error).__name__
    named = (reply.headers.get(name) for name in (paths.VERSION_HEADER, paths.END_VERSION_HEADER))
    return " ".join([str(reply.status_code), *(name or "none" for name in named)])


def _say(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
