"""Which pages the site has, grouped by what users ask. Pure.

A page that no group names stands in the last one, so that a new page cannot be left out.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase

PAGES = ("*.md", "docs/**/*.md", "examples/**/*.md", "charts/*/README.md", "bench/README.md")
NO_PAGES = ("AGENTS.md",)
_REST = "More"
GROUPS: dict[str, tuple[str, ...]] = {
    "Start": (
        "README.md",
        "docs/how-to/quick-start.md",
        "docs/tour.md",
        "docs/how-to/install.md",
        "docs/how-to/kubectl.md",
        "docs/how-to/dashboard.md",
    ),
    "Drive it from my trainer": (
        "docs/how-to/fleet-api.md",
        "docs/how-to/change-weights.md",
        "docs/how-to/checkpoints.md",
        "docs/how-to/trainers.md",
        "docs/how-to/follow.md",
        "docs/how-to/publish.md",
        "docs/how-to/deltas.md",
        "docs/how-to/lora.md",
        "docs/how-to/sample.md",
        "examples/*",
    ),
    "Storage and sizes": (
        "docs/reference/sizes.md",
        "docs/how-to/storage.md",
        "docs/how-to/stores.md",
        "docs/how-to/share.md",
    ),
    "What works": (
        "docs/how-to/limits.md",
        "docs/reference/models.md",
        "docs/reference/compatibility.md",
    ),
    "On call": (
        "docs/how-to/troubleshoot.md",
        "docs/runbooks/*",
        "docs/how-to/monitor.md",
        "docs/how-to/operate.md",
        "docs/how-to/upgrade.md",
        "docs/how-to/security.md",
        "docs/how-to/gitops.md",
    ),
    "Reference": ("docs/reference/*", "docs/glossary.md", "charts/*", "CHANGELOG.md"),
    "Design": ("docs/architecture.md", "docs/guarantees.md", "docs/decisions/*"),
    "Development": (
        "CONTRIBUTING.md",
        "docs/testing.md",
        "docs/how-to/faults.md",
        "docs/model-check.md",
        "docs/style.md",
        "bench/README.md",
    ),
}


def grouped(pages: Iterable[str]) -> dict[str, list[str]]:
    """Return each group's pages, and last those that no group names."""
    left = sorted(pages)
    found: dict[str, list[str]] = {}
    for group, patterns in GROUPS.items():
        found[group] = []
        for pattern in patterns:
            # A folder's README introduces its other pages.
            named = sorted((p for p in left if fnmatchcase(p, pattern)), key=_after_its_readme)
            found[group] += named
            left = [page for page in left if page not in named]
    return {group: some for group, some in (found | {_REST: left}).items() if some}


def _after_its_readme(page: str) -> tuple[str, bool, str]:
    folder, _, name = page.rpartition("/")
    return folder, name != "README.md", name


def below(page: str, pages: Iterable[str]) -> list[str]:
    """Return the pages that a folder's README stands for, of the folders of docs/."""
    folder, _, name = page.rpartition("/")
    if name != "README.md" or not folder.startswith("docs/"):
        return []
    return sorted(one for one in pages if one.startswith(f"{folder}/") and one != page)


def index(pages: Iterable[str], introduction: str) -> str:
    """Return the first page: the introduction, and each group as a list of its pages' titles."""
    known = list(pages)
    inner = {one for page in known for one in below(page, known)}
    parts = [introduction.rstrip()]
    for group, some in grouped(page for page in known if page not in inner).items():
        parts.append(tree(some, f":maxdepth: 1\n:caption: {group}"))
    return "\n\n".join(parts) + "\n"


def tree(pages: Iterable[str], options: str) -> str:
    """Return Sphinx' list of pages, which puts them into the navigation."""
    listed = "\n".join(f"/{page.removesuffix('.md')}" for page in pages)
    return f"```{{toctree}}\n{options}\n\n{listed}\n```"
