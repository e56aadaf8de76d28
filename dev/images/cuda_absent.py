"""Stand-ins for NVIDIA's libraries, so that torch's CUDA build loads without them.

Package indexes carry torch for x86-64 only as the CUDA build. Its libraries name
some fifteen NVIDIA ones (2.7 GB) that the dynamic linker wants at import and that
nothing calls on a machine without a GPU. This script reads from torch's own files
which symbols it expects of which library and assembles libraries that answer each
call with 100, `cudaErrorNoDevice`: torch then sees no GPU, which is the truth.
The image halves, and so does the time to build, write and import it.

Runs inside the image build (needs `nm`, `readelf`, `as`, `ld` of binutils):
    python3 cuda_absent.py <folder of torch/lib>
The libraries are put next to torch's, where its RUNPATH looks.
"""

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

# How NVIDIA's libraries are called; what else torch needs comes with the system.
VENDOR = re.compile(r"lib(cu|nv|nccl)")
# Symbols without a version do not say which library they are of, only their
# prefix separates them from Python's. Any library that all the others load holds them.
VENDOR_SYMBOL = re.compile(r"(cu|nv|nccl)[A-Za-z]")
SHARED_BY_ALL = "libcudart.so.13"
NO_DEVICE = 100


def main(folder: Path) -> None:
    """Write one stand-in per missing library into the folder."""
    libraries = sorted(folder.glob("*.so*"))
    missing = {name for library in libraries for name in needed(library) if VENDOR.match(name)}
    symbols = {name: defaultdict[str, set[str]](set) for name in missing | {SHARED_BY_ALL}}
    defined = {symbol for library in libraries for symbol in names(library, "--defined-only")}
    for library in libraries:
        files = version_files(library)
        for symbol in names(library, "--undefined-only"):
            name, _, version = symbol.partition("@")
            file = files.get(version, SHARED_BY_ALL if VENDOR_SYMBOL.match(symbol) else "")
            if file in symbols and name not in defined:
                symbols[file][version].add(name)
    for file, versions in symbols.items():
        assemble(folder / file, versions)
    count = sum(len(group) for versions in symbols.values() for group in versions.values())
    print(f"{len(symbols)} stand-ins for {count} symbols")


def needed(library: Path) -> list[str]:
    """Return the libraries that this one loads."""
    return re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "--dynamic", library))


def names(library: Path, which: str) -> list[str]:
    """Return dynamic symbols, as `name` or `name@version`."""
    lines = output("nm", "--dynamic", which, "--with-symbol-versions", library).splitlines()
    return [line.split()[-1].replace("@@", "@") for line in lines]


def version_files(library: Path) -> dict[str, str]:
    """Return which library each wanted symbol version belongs to."""
    files: dict[str, str] = {}
    file = ""
    for line in output("readelf", "--version-info", "--wide", library).splitlines():
        if found := re.search(r"\bFile: (\S+)", line):
            file = found[1]
        elif found := re.search(r"\bName: (\S+)\s+Flags", line):
            files[found[1]] = file
    return files


def assemble(target: Path, versions: dict[str, set[str]]) -> None:
    """Write a shared library whose every function returns NO_DEVICE."""
    every = sorted({name for group in versions.values() for name in group})
    lines = [".text", *(f".globl {name}\n.type {name}, @function\n{name}:" for name in every)]
    lines += [f"mov ${NO_DEVICE}, %eax", "ret", '.section .note.GNU-stack,"",@progbits', ""]
    script = "".join(
        f'"{version}" {{ global: {"".join(f"{name};" for name in sorted(group))} }};\n'
        for version, group in sorted(versions.items())
        if version
    )
    with tempfile.TemporaryDirectory() as scratch:
        source, built, exports = (Path(scratch) / name for name in ("s.s", "s.o", "exports"))
        source.write_text("\n".join(lines))
        exports.write_text(script)
        output("as", "-o", built, source)
        flags = [
            "-shared",
            "-soname",
            target.name,
            *([f"--version-script={exports}"] if script else []),
        ]
        output("ld", *flags, "-o", target, built)


def output(*argv: str | Path) -> str:
    """Return what a program prints."""
    return subprocess.run(
        [str(word) for word in argv], check=True, capture_output=True, text=True
    ).stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]))
