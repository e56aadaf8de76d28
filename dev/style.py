"""Find words that docs/style.md rules out: python -m dev.style [paths of files or folders].

`findings` maps the text of a Markdown page to findings and touches no file. Code, quotations,
comments, the targets of links and blocks between two `drawn` comments are not prose and are
skipped. `findings_in_code` maps a Python module to findings in its strings, docstrings,
comments and names of functions.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CLEAN = (
    "AGENTS.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "bench/README.md",
    "client",
    "docs/architecture.md",
    "docs/decisions",
    "docs/glossary.md",
    "docs/guarantees.md",
    "docs/how-to/change-weights.md",
    "docs/how-to/checkpoints.md",
    "docs/how-to/deltas.md",
    "docs/how-to/faults.md",
    "docs/how-to/fleet-api.md",
    "docs/how-to/follow.md",
    "docs/how-to/install.md",
    "docs/how-to/kubectl.md",
    "docs/how-to/limits.md",
    "docs/how-to/lora.md",
    "docs/how-to/monitor.md",
    "docs/how-to/operate.md",
    "docs/how-to/publish.md",
    "docs/how-to/sample.md",
    "docs/how-to/security.md",
    "docs/how-to/share.md",
    "docs/how-to/storage.md",
    "docs/how-to/stores.md",
    "docs/how-to/trainers.md",
    "docs/how-to/troubleshoot.md",
    "docs/model-check.md",
    "docs/reference/compatibility.md",
    "docs/reference/fleet.md",
    "docs/reference/http.md",
    "docs/reference/models.md",
    "docs/reference/sizes.md",
    "docs/runbooks",
    "docs/style.md",
    "docs/testing.md",
    "examples",
    "faults",
    "operator",
    "plugin",
    "sidecar",
    "tests/contract",
    "tests/e2e",
    "tests/fakes",
    "tests/integration",
    "tests/model",
    "tests/mutants",
    "tests/property",
    "tests/test_layout.py",
    "tests/unit/bench",
    "tests/unit/faults",
    "tests/unit/rlfleet",
    "tests/unit/rlfleet_contract",
    "tests/unit/rlfleet_engine",
    "tests/unit/rlfleet_kubectl",
    "tests/unit/rlfleet_view",
    "tests/unit/rlfleet_operator",
    "tests/unit/rlfleet_sidecar",
    "tests/unit/tests",
    "zoo",
)
"""Pages and folders without a finding, which `make check` keeps so. What joins this list stays."""
LONGEST = 30
"""Words in a sentence. The rule says 20; above 30 the page is rejected."""

_COMPONENT = "name the component: operator, sidecar, engine, worker, trainer, client"
_INSTEAD = (
    (r"who|whom|whoever", _COMPONENT),
    (r"nobody|anybody|somebody", _COMPONENT),
    (r"anew", "again"),
    (r"meanwhile", "leave it out, or name the interval"),
    (r"beside", "next to, with"),
    (r"of itself", "leave it out"),
    (r"no more", "no longer; of a number: at most"),
    (r"any more|anymore", "no longer"),
    (r"heed|heeds|heeded", "read, apply"),
    (r"obey|obeys|obeyed", "follow, apply"),
    (r"tend|tends|tended", "manage, reconcile"),
    (r"hear|hears|heard", "receive, observe"),
    (r"go on|goes on", "continue, resume"),
    (r"tell|tells|told", "return, report, record"),
    (r"shall", "must; of the future: the present tense"),
)
_RULES = tuple(
    (re.compile(r"\b(?:" + words.replace(" ", r"\s+") + r")\b", re.IGNORECASE), instead)
    for words, instead in _INSTEAD
)
_INLINE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)|\"[^\"]+\"|“[^”]+”", re.DOTALL)
_ABSENT = re.compile(r"<!--.*?-->|(?<=\])\([^)\s]*\)", re.DOTALL)
_DRAWN = re.compile(r"<!-- drawn [^>]*: begin -->.*?<!-- drawn [^>]*: end -->", re.DOTALL)
_FENCE = re.compile(r"\s*(```+|~~~+)")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+")
_END = re.compile(r"[.!?][)*_]*(?=\s|$)")
_WORD = re.compile(r"\S*\w\S*")


class Finding(NamedTuple):
    """One word, or one long sentence, that a rule excludes."""

    line: int
    word: str
    instead: str


class _Block(NamedTuple):
    """A paragraph, an item of a list, a heading or a cell, with its first line."""

    line: int
    text: str


def findings(page: str) -> list[Finding]:
    """Return what the rules exclude, in the order of its lines."""
    found = [one for block in _blocks(page) for one in (*_words(block), *_long(block))]
    return sorted(found, key=lambda one: one.line)


def findings_in_code(module: str) -> list[Finding]:
    """Return what the rules exclude in a Python module, in the order of its lines.

    Sentences may have any length here. A string without a space is a name and is skipped.
    """
    blocks = (*_strings_and_names(module), *_comments(module))
    return sorted((one for block in blocks for one in _words(block)), key=lambda one: one.line)


def _strings_and_names(module: str) -> Iterator[_Block]:
    for node in ast.walk(ast.parse(module)):
        match node:
            case ast.Constant(value=str(text)) if " " in text:
                yield _Block(node.lineno, text)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield _Block(node.lineno, name.replace("_", " "))


def _comments(module: str) -> Iterator[_Block]:
    for token in tokenize.generate_tokens(io.StringIO(module).readline):
        if token.type == tokenize.COMMENT:
            yield _Block(token.start[0], token.string)


def _words(block: _Block) -> Iterator[Finding]:
    for pattern, instead in _RULES:
        for match in pattern.finditer(block.text):
            word = " ".join(match.group().lower().split())
            yield Finding(_line(block, match.start()), word, instead)


def _long(block: _Block) -> Iterator[Finding]:
    start = 0
    for end in (*(match.end() for match in _END.finditer(block.text)), len(block.text)):
        words = list(_WORD.finditer(block.text, start, end))
        if len(words) > LONGEST:
            line = _line(block, words[0].start())
            yield Finding(line, f"{len(words)} words", "parts of at most 20 words each")
        start = end


def _line(block: _Block, position: int) -> int:
    return block.line + block.text.count("\n", 0, position)


def _blocks(page: str) -> Iterator[_Block]:
    lines: list[str] = []
    for number, line in enumerate([*_prose(page), ""], 1):
        alone = line.lstrip().startswith(("#", "|"))
        if lines and (alone or not line.strip() or _ITEM.match(line)):
            yield _Block(number - len(lines), "\n".join(lines))
            lines = []
        if alone:
            yield from (_Block(number, cell) for cell in line.split("|"))
        elif line.strip():
            lines.append(line)


def _prose(page: str) -> list[str]:
    """Return the page's lines, the same number of them, with what is not prose made neutral."""
    lines = _DRAWN.sub(_blank, page).splitlines()
    text = "\n".join(_without_indented(_without_fenced(lines)))
    text = _ABSENT.sub(_blank, text)
    paragraphs = re.split(r"(\n\s*\n)", text)
    return "".join(_INLINE.sub(_one_word, part) for part in paragraphs).splitlines()


def _without_fenced(lines: Iterable[str]) -> Iterator[str]:
    fence = ""
    for line in lines:
        mark = _FENCE.match(line)
        yield "" if fence or mark else line
        if fence:
            fence = "" if line.strip().startswith(fence) else fence
        elif mark:
            fence = mark.group(1)


def _without_indented(lines: Iterable[str]) -> Iterator[str]:
    """Yield each line, empty where it is indented code or a block quotation.

    Below an item of a list, indented lines are prose of that item.
    """
    code, item = True, False
    for line in lines:
        if line.strip():
            item = bool(_ITEM.match(line)) or (item and line.startswith(" "))
            code = line.lstrip().startswith(">") or (code and not item and line.startswith("    "))
            yield "" if code else line
        else:
            code = True
            yield line


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())


def _one_word(match: re.Match[str]) -> str:
    """Return a word of the same length, so that a quoted part counts once in its sentence."""
    return re.sub(r"[^\n]", "x", match.group())


def main(paths: Sequence[str]) -> int:
    """Print the findings below the paths, or in what is clean; return the exit status."""
    found = [
        f"{file}:{one.line}: {one.word}: {one.instead}"
        for path in paths or CLEAN
        for file in _files(ROOT / path)
        for one in (findings_in_code if file.suffix == ".py" else findings)(file.read_text())
    ]
    for line in found:
        print(line)
    return 1 if found else 0


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted([*path.rglob("*.md"), *path.rglob("*.py")])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
