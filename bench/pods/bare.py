"""Have the engine reload a directory by vLLM's own reload, and print the seconds it took.

Runs in a worker's sidecar container, from which the engine's control routes can be reached.
vLLM maps the files by itself: nothing of rlfleet reads, digests or compares.
"""

import json
import sys
import time
import urllib.request
from pathlib import Path

_URL = "http://127.0.0.1:8000/collective_rpc"
_LIMIT_S = 300
_PIECE = 1 << 24


def read(directory: Path) -> None:
    """Read the files once, so that the page cache holds them."""
    for file in sorted(directory.iterdir()):
        with file.open("rb", buffering=0) as opened:
            while opened.read(_PIECE):
                pass


def main() -> None:
    """Read the files; reload them if that is asked for too."""
    directory = Path(sys.argv[1])
    read(directory)
    if sys.argv[2:] != ["reload"]:
        return
    body = {"method": "reload_weights", "kwargs": {"weights_path": str(directory)}}
    request = urllib.request.Request(
        _URL, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    begun = time.perf_counter()
    with urllib.request.urlopen(request, timeout=_LIMIT_S) as reply:  # noqa: S310 - the same
        reply.read()
    print(time.perf_counter() - begun)


if __name__ == "__main__":
    main()
