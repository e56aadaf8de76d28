"""Prometheus and promtool, compiled from the Go module proxy, and a server over some targets.

dev/prometheus/go.mod pins both and go.sum makes them the same bytes everywhere; they are cached
like the Kubernetes binaries. Without service discovery of clouds a cold build takes two to three
minutes on two cores.
"""

import functools
import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dev import cache, golang, steps
from dev.environment import everything
from dev.steps import Step, StepFailed

MODULE = cache.REPOSITORY / "dev" / "prometheus"
NAMES = ("promtool", "prometheus")
_PACKAGE = "github.com/prometheus/prometheus/cmd/"
_FLAGS, _TAGS = ("-s", "-w"), ("remove_all_sd",)
_START_S = 60.0


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the result of a query at this moment; raises HTTPError for a wrong one."""
        words = urllib.parse.urlencode({"query": expression})
        url = f"{self.url}/api/v1/query?{words}"
        with urllib.request.urlopen(url, timeout=10) as reply:  # noqa: S310 - our own server
            found: list[dict[str, Any]] = json.load(reply)["data"]["result"]
        return found


def path(name: str) -> Path:
    """Return where a program lies once it is built."""
    return cache.root() / "bin" / _key() / name


def build_steps() -> list[Step]:
    """Return one step per program that is not built yet."""
    return golang.build_steps(NAMES, path, _build)


def _build(name: str) -> None:
    golang.build(f"{_PACKAGE}{name}", MODULE, path(name), _FLAGS, _TAGS)


@functools.cache
def _key() -> str:
    return golang.key(MODULE, *_FLAGS, *_TAGS)


@contextmanager
def running(
    folder: Path,
    port: int,
    jobs: Mapping[str, Sequence[str]],
    labels: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Prometheus]:
    """Run a server that scrapes the addresses of each job every second, alerts of the chart too.

    Each sample gets the labels, as a PodMonitor would give them.
    """
    scrapes = [
        {
            "job_name": job,
            "honor_labels": True,
            "static_configs": [{"targets": list(targets), "labels": dict(labels)}],
        }
        for job, targets in jobs.items()
    ]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "scrape_configs": scrapes,
        "rule_files": [str(cache.REPOSITORY / "charts/rlfleet/rules/*.yaml")],
    }
    folder.mkdir(parents=True, exist_ok=True)
    # JSON is YAML.
    (folder / "prometheus.yaml").write_text(json.dumps(config))
    argv = [str(path("prometheus")), f"--config.file={folder / 'prometheus.yaml'}"]
    argv += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            argv, env=everything(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            server = Prometheus(f"http://127.0.0.1:{port}")
            _await(server, process)
            yield server
        finally:
            process.terminate()
            process.wait()


def _await(server: Prometheus, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            server.query("vector(1)")
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise StepFailed(f"Prometheus did not answer within {_START_S:g} s; see its log")


def main() -> None:
    """Build both and print where they are."""
    steps.run(build_steps())
    steps.say(str(path("promtool").parent))


if __name__ == "__main__":
    steps.main(main)
