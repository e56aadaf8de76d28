"""Exchange vLLM's Python files for those of a wheel for GPUs; the compiled ones for CPUs stay.

Only NVIDIA's build of a release may be on the package index. Its Python code is every platform's,
and finds the compiled operators by name, so that the ones of the release before do where their
signatures are the same. vLLM knows a build for CPUs by its version, which gets "+cpu".

Runs inside the image build:
    python3 python_files.py <folder with vLLM's wheel, which is removed> <site-packages>
"""

import shutil
import sys
import zipfile
from pathlib import Path

PACKAGE = "vllm"


def main() -> None:
    """Exchange the files, then remove the wheel."""
    wheels, site = map(Path, sys.argv[1:])
    (wheel,) = wheels.glob(f"{PACKAGE}-*.whl")
    release = wheel.name.split("-")[1]
    for kept in site.glob(f"{PACKAGE}*-*.dist-info"):
        shutil.rmtree(kept)
    for file in (site / PACKAGE).rglob("*"):
        if file.is_file() and ".so" not in file.suffixes:
            file.unlink()
    with zipfile.ZipFile(wheel) as archive:
        taken = [name for name in archive.namelist() if is_taken(name)]
        archive.extractall(site, taken)
    info = site / f"{PACKAGE}-{release}.dist-info"
    metadata = (info / "METADATA").read_text()
    (info / "METADATA").write_text(for_cpus(metadata, release))
    wheel.unlink()


def is_taken(name: str) -> bool:
    """Return whether a file of the wheel is neither compiled nor a list of files."""
    is_listed = name.endswith(".dist-info/RECORD")
    return name.startswith(PACKAGE) and ".so" not in Path(name).suffixes and not is_listed


def for_cpus(metadata: str, release: str) -> str:
    """Return the package's metadata with the version of a build for CPUs."""
    return metadata.replace(f"\nVersion: {release}\n", f"\nVersion: {release}+cpu\n", 1)


if __name__ == "__main__":
    main()
