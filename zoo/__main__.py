"""Examine models, one JSON line each: python -m zoo [NAME ...]; no name: all."""

import argparse
import json
import os
import sys

os.environ |= {  # noqa: TID251 - vLLM's own settings, before it is imported
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "TORCH_COMPILE_DISABLE": "1",
    "HF_HUB_OFFLINE": "1",
}

from zoo import keeper
from zoo.examine import examine


def main() -> int:
    """Examine; returns 1 when one fails."""
    parser = argparse.ArgumentParser(prog="python -m zoo", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(keeper.MODELS))
    names = parser.parse_args().names or list(keeper.MODELS)
    # vLLM prints on standard output too.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    failed = 0
    for name in names:
        row = examine(name)
        failed += not row["passed"]
        out.write(json.dumps(row) + "\n")
        out.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    # vLLM's threads would keep the process.
    os._exit(status)
