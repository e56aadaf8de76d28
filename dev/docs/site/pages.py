"""The pages of the repository, and their copy from which the site is made."""

import shutil
from pathlib import Path

from dev.docs.site import navigation, staging

ROOT = Path(__file__).resolve().parents[3]


def pages() -> list[str]:
    """Return the paths of all pages in the repository."""
    found = {path for pattern in navigation.PAGES for path in ROOT.glob(pattern)}
    names = {str(path.relative_to(ROOT)) for path in found}
    return sorted(names - set(navigation.NO_PAGES))


def stage(target: Path) -> None:
    """Write the pages, the files that they link to, and the first page."""
    known = pages()
    for page in known:
        text = (ROOT / page).read_text()
        made = staging.staged(page, text, _is_folder, known.__contains__)
        inner = navigation.below(page, known)
        made += f"\n{navigation.tree(inner, ':hidden:')}\n" if inner else ""
        (target / page).parent.mkdir(parents=True, exist_ok=True)
        (target / page).write_text(made)
        for path in staging.targets(page, made):
            if path not in known and (ROOT / path).is_file():
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / path, target / path)
    introduction = (ROOT / "README.md").read_text().partition("\n```")[0]
    (target / "index.md").write_text(navigation.index(known, introduction))


def _is_folder(path: str) -> bool:
    return (ROOT / path).is_dir()
