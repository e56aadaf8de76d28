"""What people change about an image's build."""

import re

import pytest

from dev import cache


@pytest.mark.parametrize("name", ["operator", "worker"])
def test_pip_reads_a_mirror_that_the_build_names(name: str) -> None:
    lines = (cache.REPOSITORY / f"Dockerfile.{name}").read_text().splitlines()
    first = next(at for at, line in enumerate(lines) if "pip install" in line)
    stage = max(at for at, line in enumerate(lines[:first]) if line.startswith("FROM"))

    assert "ARG PIP_INDEX_URL" in lines[stage:first]


@pytest.mark.parametrize("file", ["Dockerfile.operator", "dev/images/Containerfile.vllm-cpu"])
def test_bytecode_that_venv_makes_with_times_is_in_no_layer(file: str) -> None:
    """A later layer hides it, but two builds of the image differ."""
    text = (cache.REPOSITORY / file).read_text().replace("\\\n", "")
    (made,) = re.findall(r"^RUN .*-m venv.*", text, re.MULTILINE)

    assert "compileall -q -f" in made
    assert "--invalidation-mode unchecked-hash" in made
