"""The Python of the pages runs, and each command of the plugin is one that it takes."""

import ast
import importlib
import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rlfleet.publish import Publisher
from rlfleet_contract.paths import MANIFEST_FILE
from rlfleet_kubectl.cli import rlf
from rlfleet_sidecar.checkpoints.headers import content_of
from rlfleet_sidecar.checkpoints.manifest import demand_hashes, manifest_of
from rlfleet_sidecar.checkpoints.safe_paths import open_model
from tests.fakes.checkpoints import write_model
from tests.unit.rlfleet.publish import reader
from tests.unit.rlfleet.publish.states import model

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(p for d in ("docs", "examples") for p in (ROOT / d).rglob("*.md"))]
)
INDENT = "    "
IMPORTS = re.compile(r"(from [\w.]+ import|import) \w")


class Block(NamedTuple):
    """Code of a page."""

    page: str
    line: int
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced and the indented blocks of a page."""
    name, found, start, is_fenced = str(page.relative_to(ROOT)), list[str](), 0, False
    for number, line in enumerate([*page.read_text().splitlines(), ""], 1):
        is_fence = line.startswith("```")
        is_code = not is_fence and (is_fenced or line.startswith(INDENT))
        is_gap = bool(found) and not line.strip() and not is_fence
        if is_code or is_gap:
            start = start if found else number
            found.append(line if is_fenced else line.removeprefix(INDENT))
        elif found:
            yield Block(name, start, "\n".join(found).strip("\n"))
            found = []
        is_fenced ^= is_fence
    if found:
        yield Block(name, start, "\n".join(found).strip("\n"))


BLOCKS = [block for page in PAGES for block in blocks(page)]
PYTHON = {block.where: block for block in BLOCKS if IMPORTS.match(block.text)}


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each `kubectl rlf` in a line of a shell."""
    for typed in text.split("kubectl rlf ")[1:]:
        words = shlex.shlex(typed, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        yield list(iter_until_operator(words))


def iter_until_operator(words: shlex.shlex) -> Iterator[str]:
    for word in words:
        if set(word) <= set("();<>|&"):
            return
        yield word


def typed() -> dict[str, list[str]]:
    """Return each command of the pages, in blocks and within sentences."""
    found: dict[str, list[str]] = {}
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ")
        for line in text.splitlines():
            is_block = line.startswith((INDENT, "$ "))
            parts = [line] if is_block else re.findall(r"`([^`]+)`", line)
            for words in (words for part in parts for words in commands(part)):
                found[f"{page.relative_to(ROOT)}: {shlex.join(words)}"] = words
    return found


COMMANDS = typed()
NAMED = {"rotate-token", "wait"}
"""Verbs that sentences name, and that need more words."""


def test_the_pages_have_code() -> None:
    """Otherwise the tests below would show nothing."""
    assert len(PYTHON) >= 4
    assert len(COMMANDS) >= 40
    assert [one[1] for one in map(list, commands("a && kubectl rlf top -A; b"))] == ["-A"]


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_command_of_a_page_is_one_that_the_plugin_takes(words: list[str]) -> None:
    verb, *rest = words

    assert verb in rlf.commands
    # In a sentence a verb alone only names the command.
    if rest or verb not in NAMED:
        rlf.commands[verb].make_context(verb, rest)


@pytest.mark.parametrize("block", PYTHON.values(), ids=PYTHON)
def test_python_of_a_page_has_names_that_there_are(block: Block) -> None:
    tree = compile(block.text, block.where, "exec", ast.PyCF_ONLY_AST)

    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                importlib.import_module(one.name)
        elif isinstance(node, ast.ImportFrom):
            found = importlib.import_module(node.module or "")
            assert [one.name for one in node.names if not hasattr(found, one.name)] == []
    for made, name, call in calls(tree):
        words = {one.arg: ... for one in call.keywords if one.arg}
        bound = inspect.signature(getattr(made, name))
        bound.bind(*(... for _ in range(len(call.args) + (name != "__call__"))), **words)


def calls(tree: ast.AST) -> Iterator[tuple[Any, str, ast.Call]]:
    """Yield the calls of methods of what a `with` makes: the class, the method, the call."""
    classes = {
        one.name: getattr(importlib.import_module(node.module or ""), one.name, None)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for one in node.names
    }
    made: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.withitem) and isinstance(node.context_expr, ast.Call):
            func, name = node.context_expr.func, node.optional_vars
            if isinstance(func, ast.Name) and isinstance(name, ast.Name) and func.id in classes:
                made[name.id] = classes[func.id]
                yield classes[func.id], "__init__", node.context_expr
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id in made:
                yield made[owner.id], node.func.attr, node


def ran(page: str, replaced: dict[str, str], **names: Any) -> None:
    """Run the Python of a page, with other places in it."""
    (block,) = [one for one in PYTHON.values() if one.page == page]
    text = block.text
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    exec(compile(text, block.where, "exec"), names)  # noqa: S102 - the page is ours


def test_the_manifest_of_the_page_is_one_that_a_sidecar_takes(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "step-120", seed=1)

    ran("docs/how-to/checkpoints.md", {"/weights/step-120": str(folder)})

    assert (folder / MANIFEST_FILE).exists()
    with open_model(folder) as opened:
        manifest = manifest_of(opened, content_of(opened, float("inf")), None)
        assert manifest is not None
        demand_hashes(opened, manifest, sorted(manifest.hashes), lambda: None)


class Trained:
    """A model whose steps change it."""

    def __init__(self) -> None:
        self.tensors = model()

    def step(self) -> None:
        self.tensors["layers.0.bias"] = self.tensors["layers.0.bias"] + 1

    def state_dict(self) -> dict[str, Any]:
        return self.tensors


def test_a_trainer_of_the_page_publishes_deltas(tmp_path: Path) -> None:
    with Publisher(tmp_path / "base") as publisher:
        base = tmp_path / "base" / publisher.publish(model()).name
    weights = tmp_path / "weights"
    places = {"/models/qwen": base, "/scratch/last": tmp_path / "last", "/weights": weights}

    replaced = {name: str(place) for name, place in places.items()} | {"range(100)": "range(3)"}
    ran("docs/how-to/publish.md", replaced, model=Trained(), train=Trained.step)

    assert reader.versions(weights) == [f"weight_v{number:06}" for number in (1, 2, 3)]
    assert set(reader.index_of(weights / "weight_v000003")["weight_map"]) == {"layers.0.bias"}
