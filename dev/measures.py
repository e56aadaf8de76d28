"""Measures of the tree, printed as a table: python3 -m dev.measures.

How wide folders are, whether packages import one another in circles, which type names stand
twice, how many frames lead from a sidecar's route to its act, how much of the prose is in
words that docs/style.md replaces, and how many lines the product has.
"""

import ast
import sys
from collections import Counter
from pathlib import Path

import grimp

from dev import style
from dev.docs import tree

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "rlfleet_operator": "operator",
    "rlfleet_contract": "sidecar",
    "rlfleet_sidecar": "sidecar",
    "rlfleet_engine": "sidecar",
    "rlfleet": "client",
    "rlfleet_kubectl": "plugin",
    "rlfleet_view": "plugin",
}


def main() -> None:
    """Print them."""
    files = [p for name, root in PACKAGES.items() for p in (ROOT / root / name).rglob("*.py")]
    pages = sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md"))
    prose = [p for p in pages if p.name != "CHANGELOG.md"]
    found = {
        "widest folder, modules": widest(files),
        "packages in import circles": ", ".join(circles()) or "none",
        "type names that stand twice": ", ".join(twice(files)) or "none",
        "frames from the sidecar's route to the act": len(tree.COMMAND) - 1,
        "style findings per 10,000 words of docs": round(findings(prose)),
        "words of docs": sum(len(p.read_text().split()) for p in prose),
        "product files": len(files),
        "product lines": sum(len(p.read_text().splitlines()) for p in files),
    }
    for name, value in found.items():
        print(f"{name:<44} {value}")


def widest(files: list[Path]) -> str:
    """Return the folder with most modules, and how many it has."""
    counts = Counter(p.parent for p in files if p.name != "__init__.py")
    folder, count = counts.most_common(1)[0]
    return f"{count} ({folder.relative_to(ROOT)})"


def circles() -> list[str]:
    """Return the packages that reach themselves by the imports of others."""
    found = []
    for name, root in PACKAGES.items():
        sys.path.insert(0, str(ROOT / root))
        graph = grimp.build_graph(name)
        reached: dict[str, set[str]] = {}
        for module in graph.modules:
            for other in graph.find_modules_directly_imported_by(module):
                if _package(module) != _package(other):
                    reached.setdefault(_package(module), set()).add(_package(other))
        found += [p for p in reached if p in _reachable(p, reached)]
    return sorted(found)


def _package(module: str) -> str:
    """Return a module's package; a module of a top package counts as its own."""
    parent = module.rpartition(".")[0]
    return parent if "." in parent else module


def _reachable(start: str, edges: dict[str, set[str]]) -> set[str]:
    seen, left = set[str](), [*edges.get(start, ())]
    while left:
        one = left.pop()
        if one not in seen:
            seen.add(one)
            left += edges.get(one, ())
    return seen


def twice(files: list[Path]) -> list[str]:
    """Return the public classes that two modules define."""
    names = Counter(
        node.name
        for path in files
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sorted(name for name, count in names.items() if count > 1)


def findings(pages: list[Path]) -> float:
    """Return what the linter of prose finds, per 10,000 words."""
    texts = [p.read_text() for p in pages]
    return 10_000 * sum(len(style.findings(t)) for t in texts) / len(" ".join(texts).split())


if __name__ == "__main__":
    main()
