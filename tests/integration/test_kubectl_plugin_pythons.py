"""The built file by each newer Python of this machine: its packages are compiled for one."""

import asyncio
import functools
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from dev.kubernetes import apiserver
from tests.integration.conftest import Fleet
from tests.integration.test_kubectl_plugin_care import written
from tests.unit.rlfleet_view.recordings import HERE

pytestmark = pytest.mark.integration
VERSIONS = ("3.12", "3.13", "3.14")


def interpreter(version: str) -> str | None:
    """Return a Python of a version: on the PATH, or of pyenv."""
    own = (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python")
    return next(map(str, own), None) or shutil.which(f"python{version}")


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_newer_python_runs_it_without_a_warning(
    plane: apiserver.ControlPlane, fleet: Fleet, program: Path, user: dict[str, str], version: str
) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    await fleet.create(weightVersion="step-1")
    recorded = json.loads((HERE / "synced.json").read_text())["status"]
    await asyncio.to_thread(written, plane, fleet.namespace, "rlf", "qwen", recorded)
    run = functools.partial(subprocess.run, env=user, capture_output=True, text=True, timeout=120)

    async def said(*words: str) -> str:
        argv = [python, "-W", "error", str(program), f"--namespace={fleet.namespace}", *words]
        done = await asyncio.to_thread(run, argv)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return str(done.stdout)

    assert "kubectl rlf [OPTIONS] COMMAND" in await said("--help")
    assert "qwen-0" in await said("status", "qwen")
    assert json.loads(await said("get", "-o", "json"))
