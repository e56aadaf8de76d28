"""The shape of the repository: what no linter asks for and nobody should have to remember."""

import ast
import operator
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev import diagrams, generated, reference

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("operator", "sidecar", "dev", "bench")
FILE_LINES = 300
FUNCTION_LINES = 40
LONGER_FILES = {
    "operator/rlfleet_operator/resource.py": 430,
    "operator/rlfleet_operator/core/manifests.py": 350,
}
"""Declarations, not logic: the resource's fields and the objects of a pod. None may grow on."""
FOREIGN = tuple("/" + name + "/" for name in ("work", "root"))
"""Beginnings of paths that exist on one machine only."""


def tracked(*patterns: str) -> list[str]:
    """List the files of the repository, without those that git ignores."""
    words = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns)
    listed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True)
    return sorted(path for path in set(listed.stdout.splitlines()) if (ROOT / path).is_file())


def sources() -> list[str]:
    return tracked(*(f"{folder}/**/*.py" for folder in SOURCES))


def functions(path: str) -> Iterator[tuple[str, int]]:
    """Yield each function with its lines, docstring left out."""
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if ast.get_docstring(node) is not None:
                told = node.body[0]
                lines -= (told.end_lineno or told.lineno) - told.lineno + 1
            yield node.name, lines


def test_the_operator_module_is_python_s_own() -> None:
    standard = Path(sysconfig.get_path("stdlib"))

    assert Path(operator.__file__).is_relative_to(standard)


def test_a_bare_interpreter_started_here_finds_python_s_own_operator() -> None:
    """Other installed packages may hide the fault by importing it first."""
    words = (sys.executable, "-S", "-c", "import collections, operator; operator.add(1, 2)")

    subprocess.run(words, cwd=ROOT, check=True)


@pytest.mark.parametrize("folder", ["operator", "sidecar"])
def test_a_source_root_holds_packages_only(folder: str) -> None:
    assert [path.name for path in (ROOT / folder).glob("*.py")] == []


def test_no_package_but_python_s_is_called_operator() -> None:
    inner = [path for path in tracked("*.py") if "operator" in Path(path).parts[1:-1]]
    files = [path for path in tracked("*.py") if Path(path).name == "operator.py"]

    assert inner + files == []


@pytest.mark.parametrize("path", sources())
def test_a_file_can_be_read_at_one_sitting(path: str) -> None:
    lines = len((ROOT / path).read_text().splitlines())

    assert lines <= LONGER_FILES.get(path, FILE_LINES)


@pytest.mark.parametrize("path", sources())
def test_a_function_fits_on_a_screen(path: str) -> None:
    long = {name: lines for name, lines in functions(path) if lines > FUNCTION_LINES}

    assert long == {}


def test_the_exceptions_are_still_needed() -> None:
    lengths = {path: len((ROOT / path).read_text().splitlines()) for path in LONGER_FILES}

    assert {path for path, lines in lengths.items() if lines <= FILE_LINES} == set()


@pytest.mark.parametrize(("path", "limit"), [("README.md", 120), ("AGENTS.md", 60)])
def test_the_first_pages_stay_short(path: str, limit: int) -> None:
    assert len((ROOT / path).read_text().splitlines()) <= limit


def test_no_file_speaks_of_one_machine_s_folders() -> None:
    found = {}
    for path in tracked():
        text = (ROOT / path).read_bytes().decode(errors="ignore")
        if words := [word for word in FOREIGN if word in text]:
            found[path] = words

    assert found == {}


@pytest.mark.parametrize("path", generated.files(), ids=lambda path: path.name)
def test_a_generated_file_is_current(path: Path) -> None:
    assert path.read_text() == generated.files()[path], "run python -m dev.generated"


def test_the_stage_diagram_is_the_table_s() -> None:
    assert diagrams.stages() in (ROOT / "docs" / "architecture.md").read_text()


def test_the_reference_is_the_models() -> None:
    page = ROOT / "docs" / "reference" / "fleet.md"

    assert page.read_text() == reference.page(), "run python -m dev.reference"


def links(path: str) -> Iterator[str]:
    """Yield where the page's links lead that stay in the repository."""
    for piece in (ROOT / path).read_text().split("](")[1:]:
        target = piece.partition(")")[0].partition("#")[0]
        if target and "://" not in target:
            yield target


@pytest.mark.parametrize("path", tracked("*.md"))
def test_no_link_leads_nowhere(path: str) -> None:
    here = (ROOT / path).parent

    assert [target for target in links(path) if not (here / target).exists()] == []
