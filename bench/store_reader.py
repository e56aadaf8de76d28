"""One read of a version from a store, in a process whose time and memory are its own.

python -m bench.store_reader upload|prepare|"plain download" FOLDER JSON
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import obstore
from obstore.store import S3Store

from bench.one_pass import peak_mib
from rlfleet_contract.worker.commands import PrepareRequest
from rlfleet_sidecar.cache.store import VersionStore
from rlfleet_sidecar.checkpoints.check import Checkpoints
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.staging.prepare_job import PrepareJob

_RANGE = 32 * 1024 * 1024
_PIECE = 1024 * 1024
_THREADS = 8
_VERSION = "step-1"


def _store(about: Mapping[str, str]) -> Any:
    return S3Store(
        about["bucket"],
        endpoint=about["endpoint"],
        access_key_id=about["access_key"],
        secret_access_key=about["secret_key"],
        client_options={"allow_http": True, "timeout": "10min"},
    )


def _upload(_folder: Path, about: Mapping[str, str]) -> None:
    store = _store(about)
    for path in sorted(Path(about["version"]).iterdir()):
        obstore.put(store, f"{_VERSION}/{path.name}", path)


def _prepare(folder: Path, about: Mapping[str, str]) -> None:
    secret = folder / "secret"
    secret.mkdir()
    (secret / "AWS_ACCESS_KEY_ID").write_text(about["access_key"])
    (secret / "AWS_SECRET_ACCESS_KEY").write_text(about["secret_key"])
    settings = SidecarSettings(
        model_name="m",
        model_path=Path(about["model"]),
        weights_source=f"s3://{about['bucket']}/{{version}}",
        store_endpoint=about["endpoint"],
        store_credentials=secret,
        cache_dir=folder / "cache",
        cache_spare=0,
    )
    store = VersionStore(settings, Checkpoints(settings))
    request = PrepareRequest(operation="o", version=_VERSION)
    if not store.prepare(PrepareJob(_VERSION, 600), request, frozenset):
        raise RuntimeError(f"{_VERSION} was prepared before")


def _download(folder: Path, about: Mapping[str, str]) -> None:
    store = _store(about)
    found = obstore.list(store, prefix=f"{_VERSION}/").collect()
    ranges = iter(list(_ranges(folder, found)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                taken = next(ranges, None)
            if taken is None:
                return
            key, target, begin, end = taken
            found = obstore.get(store, key, options={"range": (begin, end)})
            with target.open("r+b", buffering=0) as file:
                for piece in found.stream(min_chunk_size=_PIECE):
                    begin += os.pwrite(file.fileno(), memoryview(piece), begin)

    threads = [threading.Thread(target=work) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _ranges(folder: Path, found: Any) -> Iterator[tuple[str, Path, int, int]]:
    for meta in found:
        target = folder / meta["path"].rpartition("/")[2]
        with target.open("wb") as made:
            made.truncate(meta["size"])
        for begin in range(0, meta["size"], _RANGE):
            yield meta["path"], target, begin, min(begin + _RANGE, meta["size"])


_WAYS: dict[str, Callable[[Path, Mapping[str, str]], None]] = {
    "upload": _upload,
    "prepare": _prepare,
    "plain download": _download,
}


def main() -> None:
    """Do it, and print its seconds and its peak memory."""
    way, folder, about = sys.argv[1:]
    begun = time.perf_counter()
    _WAYS[way](Path(folder), json.loads(about))
    seconds = time.perf_counter() - begun
    print(json.dumps({"seconds": round(seconds, 3), "peak_mib": round(peak_mib(), 1)}))


if __name__ == "__main__":
    main()
