"""What pages show, to apply, type or copy, is what the programs take."""

import ast
import hashlib
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

from dev.docs.site import pages
from dev.kubernetes import apiserver
from rlfleet_kubectl import cli
from rlfleet_operator.crd.fleet_spec import FleetSpec
from tests.integration.conftest import kubectl

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
FIELDS = {field.alias or name for name, field in FleetSpec.model_fields.items()}
COMMAND = re.compile(r"(?:^|[(|&;] ?|\$ )(?:[A-Z_]+=\S* )*(kubectl|helm|make) ([^|;&()<>#]*)")


@dataclass(frozen=True)
class Block:
    """A block of code in a page."""

    page: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks() -> Iterator[Block]:
    parser = MarkdownIt("commonmark")
    for page in pages.pages():
        for token in parser.parse((ROOT / page).read_text()):
            if token.type in {"fence", "code_block"} and token.map is not None:
                yield Block(page, token.map[0] + 1, token.content)


BLOCKS = list(blocks())


def parsed(block: Block) -> list[dict[str, Any]]:
    """Return the mappings of a block that is YAML, and nothing of any other."""
    try:
        found = list(yaml.safe_load_all(block.text))
    except yaml.YAMLError:
        return []
    return [one for one in found if isinstance(one, dict)]


def fleet_with(part: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a whole fleet with a part of a spec, as pages show it."""
    weights = {**part.get("weights", {})}
    if "source" not in weights:
        weights = {"path": "/weights/{version}", **weights}
    model = {"name": "qwen", "path": "/models/qwen", **part.get("model", {})}
    spec = {"replicas": 1, **part, "weights": weights, "model": model}
    # A patch removes a field by null.
    spec = {field: value for field, value in spec.items() if value is not None}
    return {
        "apiVersion": "rlfleet.dev/v1alpha1",
        "kind": "RLInferenceFleet",
        "metadata": {"name": name},
        "spec": spec,
    }


def objects() -> Iterator[tuple[Block, dict[str, Any]]]:
    """Yield each object, and each part of a fleet's spec, of all pages."""
    for number, block in enumerate(BLOCKS):
        for found in parsed(block):
            part = found["spec"] if set(found) == {"spec"} else found
            if {"apiVersion", "kind", "metadata"} <= set(found):
                yield block, found
            elif isinstance(part, dict) and part and set(part) <= FIELDS:
                yield block, fleet_with(part, f"block-{number}")


def test_pages_show_many_objects() -> None:
    pages = {block.page for block, _ in objects()}

    assert {"README.md", "docs/how-to/stores.md", "docs/how-to/limits.md"} <= pages
    # Of another project: cert-manager.
    assert "Certificate" in {one["kind"] for _, one in objects()}


def test_the_api_server_accepts_the_objects_and_parts_that_pages_show(
    plane: apiserver.ControlPlane, namespace: str
) -> None:
    shown = list(objects())
    words = ("apply", f"--namespace={namespace}", "--dry-run=server", "--validate=strict", "-f-")

    def error_of(*some: dict[str, Any]) -> str:
        done = kubectl(plane, *words, stdin=yaml.safe_dump_all(some), check=False)
        return done.stderr if done.returncode else ""

    if error_of(*(one for _, one in shown)):
        # An unknown field is reported without the object's name.
        assert {str(block): error for block, one in shown if (error := error_of(one))} == {}


@pytest.mark.parametrize(
    "block",
    [one for one in BLOCKS if re.search(r"^(from \S+ )?import ", one.text, re.MULTILINE)],
    ids=str,
)
def test_python_compiles(block: Block) -> None:
    ast.parse(block.text)


def test_the_manifest_of_checkpoints_md_lists_sizes_and_hashes(tmp_path: Path) -> None:
    (block,) = (
        one for one in BLOCKS if "rlfleet-manifest.json" in one.text and "import" in one.text
    )
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    code = block.text.replace("/weights/step-120", str(tmp_path))

    exec(compile(code, str(block), "exec"), {})  # noqa: S102 - the page's own code

    digest = hashlib.sha256(b"weights").hexdigest()
    expected = {"files": {"model.safetensors": {"size": 7, "sha256": digest}}}
    assert json.loads((tmp_path / "rlfleet-manifest.json").read_text()) == expected


def commands() -> Iterator[tuple[Block, str, list[str]]]:
    """Yield each call of kubectl, helm and make, with its words up to the first `--`."""
    for block in BLOCKS:
        for line in block.text.replace("\\\n", " ").splitlines():
            for program, rest in COMMAND.findall(line.strip()):
                words = [word for word in split(rest) if word != "…"]
                yield block, program, words[: words.index("--")] if "--" in words else words


def split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quotation that a pipe or bracket cut off
        return text.split()


@cache
def helped(program: str, *words: str) -> str:
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def flags_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])(--?[A-Za-z][A-Za-z0-9-]*)", text))


def objection_of_plugin(words: list[str]) -> str | None:
    if not words:
        return None
    command = cli.rlf.commands.get(words[0])
    if command is None:
        return f"no command {words[0]}"
    known = {flag for one in (*command.params, *cli.rlf.params) for flag in one.opts}
    missing = {word.partition("=")[0] for word in words if word.startswith("-")} - known
    return f"no flags {sorted(missing)} of rlf {words[0]}" if missing else None


def objection(program: str, words: list[str]) -> str | None:
    """Return what a program would object to: an unknown verb, flag or target."""
    if program == "make":
        targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        lost = [word for word in words if "=" not in word and word not in targets]
        return f"no target {lost}" if lost else None
    flags = {word.partition("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)}
    verbs = words[2:] if words[:1] == ["-n"] else words
    if verbs[:1] == ["krew"]:
        return None  # a plugin of another project
    if program == "kubectl" and verbs[:1] == ["rlf"]:
        return objection_of_plugin(verbs[1:])
    plain = [word for word in verbs if re.fullmatch(r"[a-z][a-z-]*", word)][:3]
    told = helped(program, *plain, "--help")
    if "unknown command" in told:
        return f"unknown: {' '.join(plain)}"
    missing = flags - flags_in(told + helped(program, "options"))
    return f"no flags {sorted(missing)} of {' '.join(plain)}" if missing else None


def test_commands_have_verbs_flags_and_targets_that_exist() -> None:
    called = list(commands())
    found = {
        f"{block}: {program} {' '.join(words)}": wrong
        for block, program, words in called
        if words and (wrong := objection(program, words))
    }

    assert len(called) > 100
    assert found == {}
