"""The shape of the repository: what no linter checks."""

import ast
import operator
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev import generated
from dev.docs import diagrams, reference
from rlfleet_contract.worker.problems import Code
from rlfleet_operator.core.model.worker_phase import Phase
from rlfleet_operator.core.status import verdict

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("operator", "sidecar", "client", "plugin", "dev", "bench", "faults", "zoo")
FILE_LINES = 400
FUNCTION_LINES = 40
LONGER = {
    "dev/docs/crd.py": {"definition"},
    "operator/rlfleet_operator/core/manifests/pod_manifest.py": {"_engine"},
}
"""Functions that are one literal: an object as it stands in YAML."""
LEAST_TESTS = 150
"""So many tests hold the guarantees at least."""
COMPLEXITY = 12
MORE_COMPLEX = {"dev/images/cuda_absent.py:main": 15}
"""A change of this one builds the image of vLLM again on every machine, which takes ten minutes."""
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


def test_every_command_of_the_makefile_has_its_module() -> None:
    text = (ROOT / "Makefile").read_text()
    names = set(re.findall(r"(?:\$\(DEV\)|-m dev\.)([a-z_.]+)", text))
    paths = {name: ROOT / "dev" / name.replace(".", "/") for name in names}
    files = {name: (at.with_suffix(".py"), at / "__main__.py") for name, at in paths.items()}

    assert "python.venv" in names
    assert [name for name, either in files.items() if not any(map(Path.is_file, either))] == []


@pytest.mark.parametrize("folder", ["operator", "sidecar", "client", "plugin"])
def test_a_source_root_holds_packages_only(folder: str) -> None:
    assert [path.name for path in (ROOT / folder).glob("*.py")] == []


def test_no_package_but_python_s_is_called_operator() -> None:
    inner = [path for path in tracked("*.py") if "operator" in Path(path).parts[1:-1]]
    files = [path for path in tracked("*.py") if Path(path).name == "operator.py"]

    assert inner + files == []


def named_at_top(path: str) -> Iterator[str]:
    """Yield the public classes and type aliases of a module."""
    for node in ast.parse((ROOT / path).read_text()).body:
        match node:
            case ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) if not name.isupper():
                yield name


def test_no_public_type_of_the_product_has_another_s_name() -> None:
    found: dict[str, list[str]] = {}
    for path in tracked(
        *(f"{folder}/**/*.py" for folder in ("operator", "sidecar", "client", "plugin"))
    ):
        for name in named_at_top(path):
            if name[0].isupper():
                found.setdefault(name, []).append(path)

    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_a_file_can_be_read_at_one_sitting() -> None:
    lines = {path: len((ROOT / path).read_text().splitlines()) for path in sources()}

    assert {path: count for path, count in lines.items() if count > FILE_LINES} == {}


def test_a_function_fits_on_a_screen() -> None:
    found = {path: dict(functions(path)) for path in sources()}
    long = {
        path: {name for name, lines in own.items() if lines > FUNCTION_LINES}
        for path, own in found.items()
    }

    assert {path: names for path, names in long.items() if names - LONGER.get(path, set())} == {}


DECISIONS = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.Assert,
    ast.comprehension,
    ast.match_case,
)


def own(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what stands in a function, without the functions and classes within it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from own(child)


def complexity(function: ast.AST) -> int:
    """Count the ways through a function; each term of a condition is one more."""
    count = 1
    for node in own(function):
        count += isinstance(node, DECISIONS)
        if isinstance(node, ast.comprehension):
            count += len(node.ifs)
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
    return count


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("pass", 1),
        ("if a and b and not c: pass\nelif d: pass", 5),
        ("return [x for x in y if x if z] if a or b else ()", 6),
        ("try: pass\nexcept A: pass\nexcept B: pass\nwhile a: assert b", 5),
        ("match a:\n  case 1 if b: pass\n  case _: pass", 3),
        ("def inner():\n  if a: pass\nfor x in y: pass", 2),
    ],
)
def test_complexity_counts_each_term_of_a_condition(code: str, expected: int) -> None:
    lines = "".join(f"\n  {line}" for line in code.splitlines())

    assert complexity(ast.parse(f"def outer():{lines}").body[0]) == expected


def test_a_function_has_few_ways_through_it() -> None:
    found: dict[str, int] = {}
    for path in sources():
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{path}:{node.name}"
                found[name] = max(found.get(name, 0), complexity(node))

    above = {
        name: count for name, count in found.items() if count > MORE_COMPLEX.get(name, COMPLEXITY)
    }
    assert above == {}, "name the concept in a condition, as a function of its own"


@pytest.mark.parametrize(("path", "limit"), [("README.md", 120), ("AGENTS.md", 60)])
def test_the_first_pages_stay_short(path: str, limit: int) -> None:
    assert len((ROOT / path).read_text().splitlines()) <= limit


def test_the_newest_release_is_read_in_two_minutes() -> None:
    newest = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1]

    assert len(newest.split()) <= 480, "at 240 words a minute; the rest is in the log of commits"


def test_no_file_speaks_of_one_machine_s_folders() -> None:
    found = {}
    for path in tracked():
        text = (ROOT / path).read_bytes().decode(errors="ignore")
        if words := [word for word in FOREIGN if word in text]:
            found[path] = words

    assert found == {}


@pytest.mark.parametrize("path", list(generated.files()), ids=lambda path: path.name)
def test_a_generated_file_is_current(path: Path) -> None:
    assert path.read_text() == generated.files()[path], "run python -m dev.generated"


def test_the_stage_diagram_is_the_table_s() -> None:
    assert diagrams.stages() in (ROOT / "docs" / "architecture.md").read_text()


def test_the_reference_is_the_models() -> None:
    page = ROOT / "docs" / "reference" / "fleet.md"

    assert page.read_text() == reference.page(), "write dev.docs.reference.page() there"


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


# --- what the documents name exists --------------------------------------------------------------


@pytest.mark.parametrize("path", tracked("docs/decisions/0*.md"))
def test_a_decision_answers_a_question_and_names_its_test(path: str) -> None:
    page = (ROOT / path).read_text()
    parts = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    question, last = page.partition("\n## ")[0], page.splitlines()[-1]

    assert parts == ["Decision", "Reasons", "Rejected"]
    assert question.splitlines()[-1].endswith("?")
    assert re.match(r"Tests?: `tests/", last)


def test_the_index_of_decisions_has_each_page_once() -> None:
    pages = [Path(path).name for path in tracked("docs/decisions/0*.md")]

    assert sorted(links("docs/decisions/README.md")) == pages


def test_a_test_that_the_documents_name_exists() -> None:
    told = "".join((ROOT / path).read_text() for path in tracked("*.md"))
    made = "".join((ROOT / path).read_text() for path in tracked("tests/**/*.py"))
    named = set(re.findall(r"`(test_\w+)`", told))

    assert {name for name in named if f"def {name}(" not in made} == set()


def test_a_test_that_the_guarantees_name_is_in_its_file() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text()
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", page))

    assert len(named) > LEAST_TESTS
    assert {(path, name) for path, name in named if not is_in(path, name)} == set()


def is_in(path: str, name: str) -> bool:
    file = ROOT / path
    return file.is_file() and f"def {name}(" in file.read_text()


def test_a_file_that_the_documents_name_exists() -> None:
    told = "".join((ROOT / path).read_text() for path in tracked("*.md"))
    roots = "operator|sidecar|client|tests|dev|docs|charts|crds"
    named = set(re.findall(rf"(?<![\w/])(?:{roots})/[\w/.-]+\.(?:py|md|yaml)\b", told))

    assert {path for path in named if not (ROOT / path).exists()} == set()


STATUS = ROOT / "operator/rlfleet_operator/core/status"
NO_REASONS = {"True", "False", "Fleet"} | {
    verdict.READY,
    verdict.RECONCILING,
    verdict.STALLED,
    verdict.DEGRADED,
    verdict.PAUSED,
    verdict.SYNCED,
    verdict.UNTESTED,
} - {"Paused"}


def reasons() -> set[str]:
    """Return every reason of a condition: the capitalized words in the two modules, but types."""
    words = {
        node.value
        for file in ("conditions.py", "verdict.py")
        for node in ast.walk(ast.parse((STATUS / file).read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return {word for word in words if re.fullmatch("[A-Z][A-Za-z]+", word)} - NO_REASONS


def test_each_reason_and_each_problem_comes_with_what_to_do() -> None:
    page = (ROOT / "docs" / "how-to" / "troubleshoot.md").read_text()

    assert len(reasons()) > 25
    assert {reason for reason in reasons() if f"| {reason} |" not in page} == set()
    assert {code for code in Code if f"\n| {code} |" not in page} == set()


def test_each_phase_is_in_the_glossary() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text()

    assert {phase for phase in Phase if phase not in page} == set()


def test_the_glossary_has_forty_terms_at_most_each_once_in_order() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text()
    terms = [term.lower() for term in re.findall(r"^- \*\*(.+?)\*\*", page, re.MULTILINE)]

    assert len(terms) <= 40
    assert terms == sorted(set(terms))
