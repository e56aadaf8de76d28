"""Where slow things are kept between runs, outside the work tree.

Everything that takes minutes (compiled binaries, the virtual environment, image
layers) lies under one folder, named by the hash of what it was made from. So a
name that exists is right: there is no "is it current?" beyond looking, a switch
of branch costs nothing, and `make clean-cache` is the only way to lose it.
"""

import fcntl
import hashlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dev import environment, steps

REPOSITORY = Path(__file__).resolve().parent.parent


def root() -> Path:
    """Return the cache folder."""
    return environment.cache()


def folder(*parts: str) -> Path:
    """Return a folder of the cache, made if it is missing."""
    path = root().joinpath(*parts)
    path.mkdir(parents=True, exist_ok=True)
    return path


def digest(*ingredients: Path | str) -> str:
    """Name what these files, folders and strings make: 12 hex digits."""
    total = hashlib.sha256()
    for ingredient in ingredients:
        for part in _parts(ingredient):
            total.update(hashlib.sha256(part).digest())
    return total.hexdigest()[:12]


def _parts(ingredient: Path | str) -> Iterator[bytes]:
    if isinstance(ingredient, str):
        yield ingredient.encode()
    elif ingredient.is_dir():
        for path in sorted(ingredient.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield str(path.relative_to(ingredient)).encode()
                yield path.read_bytes()
    else:
        yield ingredient.read_bytes()


@contextmanager
def lock(name: str) -> Iterator[None]:
    """Let one process at a time make `name`; the kernel frees it on any death."""
    with (folder("locks") / name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            steps.say(f"waiting for another process that works on {name} …")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def call(
    argv: list[str], log: str, cwd: Path = REPOSITORY, env: dict[str, str] | None = None
) -> None:
    """Run a slow command with its output in logs/<log>.log; show the end if it fails."""
    path = folder("logs") / f"{log}.log"
    variables = {**environment.everything(), **(env or {})}
    with path.open("wb") as out:
        done = subprocess.run(
            argv,
            cwd=cwd,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            check=False,
        )
    if done.returncode:
        said = "\n".join(path.read_text(errors="replace").splitlines()[-25:])
        command = " ".join(argv)[:200]
        raise steps.StepFailed(
            f"`{command}` ended with {done.returncode}; the end of {path}:\n{said}"
        )
