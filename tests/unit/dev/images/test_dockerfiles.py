"""What people change about an image's build."""

import pytest

from dev import cache


@pytest.mark.parametrize("name", ["operator", "worker"])
def test_pip_reads_a_mirror_that_the_build_names(name: str) -> None:
    lines = (cache.REPOSITORY / f"Dockerfile.{name}").read_text().splitlines()
    first = next(at for at, line in enumerate(lines) if "pip install" in line)
    stage = max(at for at, line in enumerate(lines[:first]) if line.startswith("FROM"))

    assert "ARG PIP_INDEX_URL" in lines[stage:first]
