"""The chart as a real Helm renders it, and what a value changes in that."""

import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.integration.conftest import IMAGES, ROOT

CHART = ROOT / "charts" / "rlfleet"
VERSION: str = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
Object = dict[str, Any]


def helm(
    *words: str, values: str = "", name: str = "rlfleet", chart: Path = CHART
) -> subprocess.CompletedProcess[str]:
    """Run ``helm template`` without the CRD, with values as YAML."""
    command = ["helm", "template", name, str(chart), "--set=crds.enabled=false", "--values=-"]
    return subprocess.run(
        [*command, *words], input=values, capture_output=True, text=True, timeout=60, check=False
    )


def rendered(*words: str, values: str = "", name: str = "rlfleet") -> str:
    """Return what ``helm install`` would send."""
    done = helm(*IMAGES, *words, values=values, name=name)
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def objects(*words: str, values: str = "", name: str = "rlfleet") -> dict[str, Object]:
    """Return the rendered objects by kind and name."""
    text = rendered(*words, values=values, name=name)
    found = [one for one in yaml.safe_load_all(text) if one]
    by_name = {f"{one['kind']}/{one['metadata']['name']}": one for one in found}
    # The workers' policy and the operator's Role are in several namespaces.
    assert len(by_name) == len(found) or "namespaces" in str((words, values))
    return by_name


def pod(*words: str, values: str = "") -> Object:
    """Return the operator's pod."""
    found = objects(*words, values=values).values()
    (template,) = (one["spec"]["template"] for one in found if one["kind"] == "Deployment")
    return dict(template)


def changes(values: str) -> dict[str, Any]:
    """Return each field that values change, with what it is now; None if it is gone.

    An object that comes or goes is one entry.
    """
    before, after = objects(), objects(values=values)
    found: dict[str, Any] = dict.fromkeys(after.keys() - before.keys(), "made")
    found |= dict.fromkeys(before.keys() - after.keys())
    for name in before.keys() & after.keys():
        was, now = dict(_leaves(before[name])), dict(_leaves(after[name]))
        differing = {path for path in was | now if was.get(path) != now.get(path)}
        found |= {f"{name} {path}": now.get(path) for path in differing}
    return found


def refusal(*words: str, values: str = "") -> str:
    """Return Helm's message for values that it refuses."""
    done = helm(*words, values=values)
    assert done.returncode, done.stdout
    return done.stderr


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each scalar and empty map with its path; items of a list by name, if they have one."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}".strip("."))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            name = inner.get("name", place) if isinstance(inner, dict) else place
            yield from _leaves(inner, f"{path}[{name}]")
    else:
        yield path, value
