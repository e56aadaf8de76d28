"""Every file below examples/ is what its reader takes: an API server, or a parser."""

import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.kubernetes import apiserver
from rlfleet_operator.core.manifests import pod_manifest
from rlfleet_operator.core.model.fleet import fleet_from
from tests.integration.conftest import kubectl

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"
DEFAULTS = pod_manifest.Defaults(worker_image="worker:1")
KUSTOMIZATION = "kustomization.yaml"
KNOWN = {".yaml", ".yml", ".md"}
NO_OBJECTS = {"autoscaling/prometheus-adapter.yaml": "a chart of others"}
"""YAML files that hold no objects, such as a chart's values, and what reads them in the tests."""


def files(*suffixes: str) -> list[str]:
    found = (path for suffix in suffixes for path in EXAMPLES.rglob(f"*{suffix}"))
    return sorted(str(path.relative_to(EXAMPLES)) for path in found)


YAML = files(".yaml", ".yml")
MANIFESTS = [name for name in YAML if Path(name).name != KUSTOMIZATION and name not in NO_OBJECTS]
FOLDERS = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
BUILDS = [str(Path(name).parent) for name in YAML if Path(name).name == KUSTOMIZATION]


def objects_in(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one is not None]


def read(name: str) -> list[dict[str, Any]]:
    return objects_in((EXAMPLES / name).read_text())


def built(folder: str) -> list[dict[str, Any]]:
    words = ["kubectl", "kustomize", str(EXAMPLES / folder)]
    return objects_in(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def pods_of(objects: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the first worker's pod of each fleet, as the operator makes it."""
    for one in objects:
        if one["kind"] == "RLInferenceFleet":
            metadata = {"namespace": "default", "uid": "u", "generation": 1} | one["metadata"]
            yield pod_manifest.pod(fleet_from({**one, "metadata": metadata}), 0, DEFAULTS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_api_server_accepts_manifests_what_kustomize_makes_and_worker_pods(
    plane: apiserver.ControlPlane, namespace: str, folder: str
) -> None:
    kubectl(plane, "label", "namespace", namespace, RESTRICTED)
    raw = [read(name) for name in MANIFESTS if Path(name).parts[0] == folder]
    made = [built(name) for name in BUILDS if Path(name).parts[0] == folder]
    objects = [one for some in (*raw, *made) for one in some]
    objects += pods_of(objects)
    for one in objects:
        one["metadata"].pop("namespace", None)
    words = ("apply", f"--namespace={namespace}", "--dry-run=server", "--validate=strict")

    done = kubectl(plane, *words, "-f", "-", stdin=yaml.safe_dump_all(objects), check=False)

    assert objects
    assert done.returncode == 0, done.stderr
    # Pod Security warns of what it would reject in the pods of Deployments and Jobs.
    assert "would violate" not in done.stderr
    assert len(done.stdout.splitlines()) == len(objects)


CHART = ROOT / "charts" / "rlfleet"
CALLERS = [
    (name, one)
    for name in MANIFESTS
    for one in read(name)
    if one["kind"] in {"Job", "Deployment"}
    and re.search("8000|8082|8090", (EXAMPLES / name).read_text())
]


@pytest.mark.parametrize(("name", "workload"), CALLERS, ids=[one[0] for one in CALLERS])
def test_the_chart_s_network_policies_let_in_what_calls_a_fleet(
    name: str, workload: dict[str, Any]
) -> None:
    policy = yaml.safe_load((CHART / "values.yaml").read_text())["networkPolicy"]
    labels = workload["spec"]["template"]["metadata"]["labels"]
    text = (EXAMPLES / name).read_text()

    for ports, value in (("8082|8090", "trainers"), ("8000", "samplers")):
        (peer,) = policy[value]
        if re.search(ports, text):
            assert peer["podSelector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("folder", BUILDS)
def test_a_kustomization_leaves_out_no_manifest_next_to_it(folder: str) -> None:
    made = {(one["kind"], one["metadata"]["name"]) for one in built(folder)}
    here = [name for name in MANIFESTS if Path(name).parent == Path(folder)]
    written = {(one["kind"], one["metadata"]["name"]) for name in here for one in read(name)}

    assert written <= made


def test_the_table_of_exceptions_names_what_is_there() -> None:
    assert set(NO_OBJECTS) <= set(YAML)


@pytest.mark.parametrize("name", files(".toml", ".json", ".sh"))
def test_a_file_of_another_kind_parses(name: str) -> None:
    path = EXAMPLES / name
    match path.suffix:
        case ".toml":
            assert tomllib.loads(path.read_text())
        case ".json":
            assert json.loads(path.read_text())
        case _:
            subprocess.run(["bash", "-n", path], check=True)


@pytest.mark.parametrize("folder", FOLDERS)
def test_an_example_has_a_page_that_names_each_of_its_files(folder: str) -> None:
    page = (EXAMPLES / folder / "README.md").read_text()
    listed = {Path(name).parts[1] for name in MANIFESTS if Path(name).parts[0] == folder}
    listed |= {path.name for path in (EXAMPLES / folder).glob("*.*") if path.suffix not in KNOWN}
    assert [name for name in sorted(listed) if name not in page] == []


def commands() -> Iterator[tuple[str, str]]:
    """Yield the lines of indented blocks in the pages, each with its page."""
    for page in sorted(EXAMPLES.rglob("README.md")):
        for line in page.read_text().splitlines():
            if line.startswith("    ") and not line.startswith("     "):
                yield str(page.relative_to(ROOT)), line.strip()


@pytest.mark.parametrize(("page", "line"), list(commands()))
def test_a_command_names_files_that_are_there(page: str, line: str) -> None:
    words = shlex.split(re.sub(r"[$()…]", " ", line), comments=True)
    paths = [word for word in words if word.startswith(("examples/", "charts/", "docs/", "dev/"))]
    toml = [word for word in words if word.endswith(".toml")]

    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert [name for name in toml if not (ROOT / page).with_name(name).exists()] == []
