"""Programs compiled from the Go module proxy, each pinned by a module of ours or by its own."""

import functools
import json
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from dev import cache
from dev.steps import Step, StepFailed


def key(module: Path, *flags: str) -> str:
    """Name what a module's pins and sources make with this compiler."""
    sources = [module / "go.mod", module / "go.sum", *sorted(module.rglob("*.go"))]
    return cache.digest(*sources, compiler(module), *flags)


def compiler(folder: Path) -> str:
    """Return the version of the compiler that a folder is compiled with."""
    return _go(folder, "env", "GOVERSION")


def build_steps(
    names: Iterable[str], path: Callable[[str], Path], make: Callable[[str], None]
) -> list[Step]:
    """Return one step per program that is not built yet."""
    return [
        Step(f"building {name}", functools.partial(make, name))
        for name in names
        if not path(name).exists()
    ]


def build(
    package: str, module: Path, target: Path, flags: Sequence[str], tags: Sequence[str] = ()
) -> None:
    """Compile a program, unless it is there; one process at a time."""
    with cache.lock("go"):
        # Another process may have built it while this one waited.
        if target.exists():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_suffix(".unfinished")
        argv = ["go", "build", "-mod=readonly", "-trimpath", "-ldflags", " ".join(flags)]
        argv += [f"-tags={','.join(tags)}", "-o", str(unfinished), package]
        cache.call(argv, f"build-{target.name}", cwd=module, env={"CGO_ENABLED": "0"})
        unfinished.replace(target)


def source(module: str, version: str, checksum: str) -> Path:
    """Download a module, to be compiled with its own go.mod and go.sum; return its folder.

    The checksum is that of go.sum (``h1:…``).
    """
    # Outside of any module: the versions of another must not be asked for.
    argv = ["mod", "download", "-json", f"{module}@{version}"]
    found = json.loads(_go(cache.folder("logs"), *argv))
    if found["Sum"] != checksum:
        raise StepFailed(f"{module}@{version} has the checksum {found['Sum']}, not {checksum}")
    return Path(found["Dir"])


def required(module: Path, path: str) -> Path:
    """Return the folder of a module that a module of ours requires, downloaded."""
    _go(module, "mod", "download", path)
    return Path(_go(module, "list", "-m", "-f", "{{.Dir}}", path).strip())


def pinned(module: Path, path: str) -> tuple[str, str]:
    """Return version and checksum of a module that a module of ours requires, by its go.sum."""
    for line in (module / "go.sum").read_text().splitlines():
        name, version, checksum = line.split()
        if name == path and not version.endswith("/go.mod"):
            return version, checksum
    raise StepFailed(f"{module}/go.sum does not have {path}")


def _go(module: Path, *argv: str) -> str:
    if not shutil.which("go"):
        raise StepFailed("this is compiled here: install Go 1.24 or newer, see go.dev/dl")
    told = subprocess.run(["go", *argv], cwd=module, check=True, capture_output=True, text=True)
    return told.stdout
