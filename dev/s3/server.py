"""versitygw over a folder, compiled from the Go module proxy.

dev/s3/go.mod pins it and go.sum makes it the same bytes everywhere; it is cached like the
Kubernetes binaries. A cold build takes two to three minutes on two cores.
"""

import functools
import json
import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dev import cache, golang, steps
from dev.environment import everything
from dev.servers import accepts, free_ports
from dev.steps import Step, StepFailed

MODULE = cache.REPOSITORY / "dev" / "s3"
_NAME = "versitygw"
_PACKAGE = "github.com/versity/versitygw/cmd/versitygw"
_FLAGS = ("-s", "-w")
_START_S = 30.0
_READ = ["s3:GetObject", "s3:ListBucket"]


@dataclass(frozen=True)
class Server:
    """A running server. Folders of ``data`` are buckets; it knows one account."""

    url: str
    access_key: str
    secret_key: str
    data: Path

    def bucket(self, name: str) -> Path:
        """Make a bucket."""
        path = self.data / name
        path.mkdir()
        return path

    def make_public(self, bucket: str) -> None:
        """Let everybody list and read a bucket, as its policy would."""
        names = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
        statement = {"Effect": "Allow", "Principal": "*", "Action": _READ, "Resource": names}
        policy = {"Version": "2012-10-17", "Statement": [statement]}
        os.setxattr(self.data / bucket, "user.policy", json.dumps(policy).encode())


def path() -> Path:
    """Return where the server's program lies once it is built."""
    return cache.root() / "bin" / _key() / _NAME


def build_steps() -> list[Step]:
    """Return the step that builds the server, or none."""
    if path().exists():
        return []
    return [Step(f"building {_NAME}", lambda: golang.build(_PACKAGE, MODULE, path(), _FLAGS))]


@functools.cache
def _key() -> str:
    return golang.key(MODULE, *_FLAGS)


@contextmanager
def running(
    data: Path, *, certificate: Path | None = None, key: Path | None = None
) -> Iterator[Server]:
    """Run a server over a folder, with TLS if there is a certificate."""
    data.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    access_key, secret_key = "test", secrets.token_hex(16)
    tls = [f"--cert={certificate}", f"--key={key}"] if certificate else []
    argv = [str(path()), f"--port=127.0.0.1:{port}", "--quiet", "--keep-alive", *tls]
    account = {"ROOT_ACCESS_KEY_ID": access_key, "ROOT_SECRET_ACCESS_KEY": secret_key}
    with (data.parent / f"{data.name}.log").open("wb") as log:
        process = subprocess.Popen(
            [*argv, "posix", str(data)],
            env={**everything(), **account},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            _await_port(port, process)
            scheme = "https" if certificate else "http"
            yield Server(f"{scheme}://127.0.0.1:{port}", access_key, secret_key, data)
        finally:
            process.terminate()
            process.wait()


def _await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end and process.poll() is None:
        if accepts(port):
            return
        time.sleep(0.05)
    raise StepFailed(f"{_NAME} did not listen on port {port} within {_START_S:g} s; see its log")


def main() -> None:
    """Build it and print where it is."""
    steps.run(build_steps())
    steps.say(str(path()))


if __name__ == "__main__":
    steps.main(main)
