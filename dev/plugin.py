"""Make the kubectl plugin one file: python3 -m dev.plugin, which `make plugin` runs.

build/kubectl-rlf is a zip that Python runs: our packages, click and rich as requirements/dev.lock
has them (the environment was installed by its hashes). build/rlf.yaml is krew's manifest of
build/kubectl-rlf.tar.gz. The same sources make the same bytes.
"""

import functools
import gzip
import hashlib
import importlib.metadata
import importlib.util
import io
import marshal
import os
import re
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

from dev import cache, environment, steps
from dev.release import version

SOURCES = cache.REPOSITORY / "plugin"
BUILD = cache.REPOSITORY / "build"
NAME = "kubectl-rlf"
PACKAGES = ("rlfleet_kubectl", "rlfleet_view")
SUFFIXES = {".py", ".json", ".html", ".css", ".js", ".svg"}
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every file: a zip has no earlier one."""
LICENCES = re.compile(r"\.dist-info/.*(licen[cs]e|copying|notice)", re.IGNORECASE)
URI = "https://example.com/rlfleet/releases/download/v{version}/kubectl-rlf.tar.gz"
"""Where a release is published; PLUGIN_URI names another."""
BEGIN = """\
import sys

if sys.version_info < (3, 11):
    sys.exit("error: kubectl-rlf needs Python 3.11 or newer, found %d.%d" % sys.version_info[:2])

from rlfleet_kubectl.__main__ import main

main()
"""


def main() -> None:
    """Write the file, its archive and krew's manifest."""
    BUILD.mkdir(exist_ok=True)
    steps.run([steps.Step("making the kubectl plugin", functools.partial(make, BUILD))])


def make(folder: Path) -> str:
    """Write all three into a folder; return what was made."""
    program = write(folder / NAME)
    packed = archive(program.read_bytes())
    (folder / f"{NAME}.tar.gz").write_bytes(packed)
    uri = environment.variable("PLUGIN_URI") or URI.format(version=version.current())
    template = (SOURCES / "krew.yaml").read_text()
    digest = hashlib.sha256(packed).hexdigest()
    filled = template.replace("@VERSION@", version.current()).replace("@URI@", uri)
    (folder / "rlf.yaml").write_text(filled.replace("@SHA256@", digest))
    return f"{program.name}, {program.stat().st_size / 1024:.0f} KiB"


def write(target: Path) -> Path:
    """Write the program; return its path."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name, content in sorted(contents().items()):
            packed.writestr(_entry(name), content)
            if name.endswith(".py"):
                packed.writestr(_entry(f"{name}c"), _compiled(name, content))
    target.write_bytes(b"#!/usr/bin/env python3\n" + held.getvalue())
    target.chmod(0o755)
    return target


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


def _compiled(name: str, content: bytes) -> bytes:
    """Return the bytecode, which another release of Python passes over: it reads the source.

    It is written as PEP 552 has it, unchecked. Marshal's version 2 has no references, whose use
    depends on what else the interpreter holds: the bytes would differ.
    """
    code = compile(content, name, "exec", dont_inherit=True)
    head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little")
    return head + importlib.util.source_hash(content) + marshal.dumps(code, 2)


def contents() -> dict[str, bytes]:
    """Return the files of the program by their names in it."""
    found = {
        path.relative_to(SOURCES).as_posix(): path.read_bytes()
        for package in PACKAGES
        for path in (SOURCES / package).rglob("*")
        if path.suffix in SUFFIXES
    }
    for name in needs():
        found |= dict(_vendored(importlib.metadata.distribution(name)))
    return {**found, "__main__.py": BEGIN.encode()}


def needs() -> list[str]:
    """Return the packages that it holds: those of the extra `plugin`.

    What rich itself needs, it imports only for Markdown and for coloured source code.
    """
    project = tomllib.loads((cache.REPOSITORY / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["plugin"]
    return [re.split(r"[<>=]", need)[0] for need in extra]


def _vendored(package: importlib.metadata.Distribution) -> Iterator[tuple[str, bytes]]:
    """Yield the modules and licences of an installed package, as its wheel lists them."""
    for file in package.files or ():
        name = file.as_posix()
        if name.endswith(".py") or LICENCES.search(name):
            yield name, Path(os.fspath(file.locate())).read_bytes()
        elif name.endswith((".so", ".pyd")):
            raise steps.StepFailed(f"{package.name} is not pure Python: {name}")


def archive(program: bytes) -> bytes:
    """Return the archive that krew downloads: the program and the licence."""
    files = {NAME: (program, 0o755)}
    files["LICENSE"] = ((cache.REPOSITORY / "LICENSE").read_bytes(), 0o644)
    held = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=held, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as packed,
    ):
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            packed.addfile(entry, io.BytesIO(content))
    return held.getvalue()


if __name__ == "__main__":
    steps.main(main)
