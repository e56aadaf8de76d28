"""Examine models, one JSON line each: python -m zoo [--like-gpu | --packed] [NAME ...].

Each model has a process of its own, as in a pod: the extension records what loads of its process
have read, and with another model's names it cannot say how a model renames its own.
"""

import argparse
import json
import os
import sys
from multiprocessing import get_context
from typing import Any, TextIO

os.environ |= {  # noqa: TID251 - vLLM's own settings, before it is imported
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # Ranks share the cores: vLLM would bind each to a NUMA node of its own.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "TORCH_COMPILE_DISABLE": "1",
    "HF_HUB_OFFLINE": "1",
}

from vllm.platforms import current_platform

from rlfleet_engine.vllm import model_infos
from zoo import attention, experts, keeper, kernels, packed
from zoo.examine import examine

PASSED, FAILED = 0, 3
"""Exit codes; Python's own of an error is 1."""


def main() -> int:
    """Examine; returns 1 when one fails."""
    parser = argparse.ArgumentParser(prog="python -m zoo", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(keeper.MODELS))
    parser.add_argument("--like-gpu", action="store_true", help="reload as on a GPU")
    parser.add_argument("--packed", action="store_true", help="pack all linear layers")
    options = parser.parse_args()
    model_infos.bring()
    if current_platform.is_cpu():
        kernels.use()
        experts.use()
        attention.use()
    if options.packed:
        packed.use()
    # vLLM prints on standard output too.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    failed = 0
    for name in options.names or keeper.MODELS:
        # Forked, because vLLM takes long to import; it has begun nothing yet.
        work = {"name": name, "out": out, "like_gpu": options.like_gpu}
        child = get_context("fork").Process(target=_examine, kwargs=work)
        child.start()
        child.join()
        failed += child.exitcode != PASSED
        if child.exitcode not in {PASSED, FAILED}:
            _write(_died(name, child.exitcode), out)
    return FAILED if failed else PASSED


def _examine(name: str, out: TextIO, *, like_gpu: bool) -> None:
    row = examine(name, like_gpu=like_gpu)
    _write(row, out)
    sys.stderr.flush()
    # vLLM's threads would keep the process.
    os._exit(PASSED if row["passed"] else FAILED)


def _died(name: str, exitcode: int | None) -> dict[str, Any]:
    error = f"its process ended with {exitcode}"
    kind = keeper.MODELS[name]["kind"]
    return {"model": name, "kind": kind, "error": error, "passed": False, "seconds": 0.0}


def _write(row: dict[str, Any], out: TextIO) -> None:
    out.write(json.dumps(row) + "\n")
    out.flush()


if __name__ == "__main__":
    sys.exit(main())
