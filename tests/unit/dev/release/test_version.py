"""One version: pyproject.toml's, in the packages, the chart, the pages, and what --version says."""

import subprocess
import sys

import pytest
import yaml
from click.testing import CliRunner

import rlfleet
import rlfleet_contract
from dev import cache
from dev.release import version
from rlfleet_kubectl.cli import rlf


def test_the_chart_has_the_version_of_the_project() -> None:
    chart = yaml.safe_load((cache.REPOSITORY / version.CHART).read_text())

    assert chart["version"] == chart["appVersion"] == version.current()


def test_the_packages_have_the_version_of_the_project() -> None:
    assert {rlfleet.__version__, rlfleet_contract.__version__} == {version.current()}


@pytest.mark.parametrize("program", ["rlfleet_operator", "rlfleet_sidecar"])
def test_a_program_in_an_image_names_its_version(program: str) -> None:
    words = (sys.executable, "-m", program, "--version")
    said = subprocess.run(words, cwd=cache.REPOSITORY, check=True, capture_output=True, text=True)

    assert said.stdout == f"rlfleet {version.current()}\n"


def test_the_plugin_names_its_version() -> None:
    said = CliRunner().invoke(rlf, ["--version"])

    assert said.output == f"kubectl-rlf, version {version.current()}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("REGISTRY/operator:0.0.9 .", "REGISTRY/operator:1.2.3 ."),
        ("rlfleet.local/worker:0.0.9-cpu", "rlfleet.local/worker:1.2.3-cpu"),
        ("rlfleet-worker-cpu-0.0.9.tar", "rlfleet-worker-cpu-1.2.3.tar"),
        ("--set image.tag=0.0.9 \\", "--set image.tag=1.2.3 \\"),
        ("newTag: 0.0.9}", "newTag: 1.2.3}"),
        ("vllm/vllm-openai:v0.32.0", "vllm/vllm-openai:v0.32.0"),
        ("from 0.0.9", "from 0.0.9"),
    ],
)
def test_a_page_names_the_current_version_of_ours_only(text: str, expected: str) -> None:
    assert version.in_page(text, "1.2.3") == expected
