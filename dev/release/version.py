"""The version of the project: pyproject.toml has it, and every other file that names it follows.

`python -m dev.generated` writes it there: images do not install our distribution, so that packages
carry it themselves. The changelog names earlier versions, and is left alone.
"""

import re
import tomllib
from pathlib import Path

from dev import cache

PACKAGES = ("sidecar/rlfleet_contract", "client/rlfleet", "plugin/rlfleet_kubectl")
"""Their `__version__`: of operator and sidecar, of a trainer's client, of the plugin."""
CHART = "charts/rlfleet/Chart.yaml"
PAGES = (
    "README.md",
    "docs/how-to/*.md",
    "examples/**/*.md",
    "examples/**/*.yaml",
    "deploy/kustomize/overlays/**/*.yaml",
)
_IN_PACKAGE = re.compile(r'(?m)^(__version__ = ")[^"]+')
_IN_CHART = re.compile(r"(?m)^((?:v|appV)ersion: )\S+")
_IN_PAGE = re.compile(
    r"(/(?:operator|worker):|\brlfleet(?:-[a-z]+)*-|image\.tag=|newTag: )\d+\.\d+\.\d+"
)


def current() -> str:
    """Return the version that pyproject.toml names."""
    project = tomllib.loads((cache.REPOSITORY / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def stamped() -> dict[Path, str]:
    """Return each file that names the version, with the text that names the current one."""
    found = dict.fromkeys(_packages(), _IN_PACKAGE)
    found[cache.REPOSITORY / CHART] = _IN_CHART
    for pattern in PAGES:
        found |= dict.fromkeys(cache.REPOSITORY.glob(pattern), _IN_PAGE)
    return {
        path: pattern.sub(rf"\g<1>{current()}", path.read_text())
        for path, pattern in sorted(found.items())
        if pattern.search(path.read_text())
    }


def in_page(text: str, version: str) -> str:
    """Return a page's text with this version wherever it names one of ours."""
    return _IN_PAGE.sub(rf"\g<1>{version}", text)


def _packages() -> list[Path]:
    return [cache.REPOSITORY / package / "__init__.py" for package in PACKAGES]
