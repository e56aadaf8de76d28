"""`make release` without the images, made twice: what a user installs, checks and verifies."""

import base64
import hashlib
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from securesystemslib.dsse import Envelope
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

from dev.release import chart, contents, image_files, version
from dev.release.__main__ import digests
from dev.release.signing import Key

pytestmark = pytest.mark.integration
NUMBER = version.current()
URI = "https://releases.example/kubectl-rlf.tar.gz"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two releases of one commit, signed with a throwaway key."""
    plan = contents.Plan(
        1_700_000_000, COMMIT, Key(ec.generate_private_key(ec.SECP256R1())), with_images=False
    )
    one, other = (tmp_path_factory.mktemp("release") for _ in range(2))
    with pytest.MonkeyPatch.context() as variables:
        variables.setenv("PLUGIN_URI", URI)
        for folder in (one, other):
            for step in contents.make_steps(folder, plan):
                step.act()
    return one, other


@pytest.fixture(scope="module")
def release(two: tuple[Path, Path]) -> Path:
    return two[0]


def test_two_releases_of_one_commit_are_the_same_bytes(two: tuple[Path, Path]) -> None:
    one, other = map(digests, two)

    assert one == other
    assert len(one) == 14


def test_the_checksums_are_those_of_every_file_and_are_signed(release: Path) -> None:
    sums = (release / contents.SUMS).read_text()
    listed = {name: digest for digest, name in map(str.split, sums.splitlines())}
    unlisted = {contents.SUMS, f"{contents.SUMS}.sig"}

    assert {n: d for n, d in digests(release).items() if n not in unlisted} == listed
    public = load_pem_public_key((release / f"rlfleet-{NUMBER}.pub").read_bytes())
    assert isinstance(public, ec.EllipticCurvePublicKey)
    signature = base64.b64decode((release / f"{contents.SUMS}.sig").read_text())
    public.verify(signature, sums.encode(), ec.ECDSA(SHA256()))


def test_each_bill_of_materials_is_valid_and_names_its_artefact(release: Path) -> None:
    found = sorted(release.glob("*.spdx.json"))

    assert len(found) == 3
    for path in found:
        document = parse_file(str(path))
        assert validate_full_spdx_document(document) == []
        root = document.packages[0]
        artefact = (release / root.name).read_bytes()
        assert root.checksums[0].value == hashlib.sha256(artefact).hexdigest()
        assert root.version == NUMBER


def test_the_plugin_s_parts_have_version_and_licence(release: Path) -> None:
    document = json.loads((release / "kubectl-rlf.spdx.json").read_text())
    parts = {part["name"]: part for part in document["packages"]}

    assert {"click", "rich"} < set(parts)
    assert parts["click"]["licenseDeclared"] == "BSD-3-Clause"
    assert all(part["versionInfo"] for part in parts.values())


def test_provenance_names_the_commit_and_every_artefact(release: Path) -> None:
    held = json.loads((release / f"rlfleet-{NUMBER}.provenance.json").read_text())
    said = json.loads(Envelope.from_dict(held).payload)
    artefacts = {one["name"] for one in said["subject"]}

    assert said["predicate"]["buildDefinition"]["externalParameters"] == {
        "command": "make release",
        "images": False,
        "SOURCE_DATE_EPOCH": 1_700_000_000,
        "PLUGIN_URI": URI,
    }
    assert COMMIT in json.dumps(said["predicate"]["buildDefinition"]["resolvedDependencies"])
    assert f"rlfleet-{NUMBER}.tgz" in artefacts
    assert {f"rlfleet-{NUMBER}-py3-none-any.whl", "kubectl-rlf"} < artefacts


def test_krew_s_manifest_names_the_archive_and_its_address(release: Path) -> None:
    (platform,) = yaml.safe_load((release / "rlf.yaml").read_text())["spec"]["platforms"]

    assert platform["uri"] == URI
    assert platform["sha256"] == digests(release)["kubectl-rlf.tar.gz"]


def test_helm_installs_the_packaged_chart(release: Path) -> None:
    words = ("helm", "template", "rlfleet", str(release / f"rlfleet-{NUMBER}.tgz"))
    values = ("--set=image.repository=a/operator", "--set=worker.image=a/worker:1")
    said = subprocess.run([*words, *values], check=True, capture_output=True, text=True).stdout

    kinds = {document["kind"] for document in yaml.safe_load_all(said) if document}
    assert {"Deployment", "CustomResourceDefinition", "ClusterRole"} <= kinds


def test_the_chart_s_artefact_holds_the_package(release: Path) -> None:
    with tarfile.open(release / f"rlfleet-chart-{NUMBER}.oci.tar") as archive:
        blobs = {Path(entry.name).name: archive.extractfile(entry) for entry in archive}
        package = (release / f"rlfleet-{NUMBER}.tgz").read_bytes()
        held = blobs[hashlib.sha256(package).hexdigest()]
        assert held is not None
        assert held.read() == package


def test_the_chart_s_artefact_has_the_annotations_that_helm_push_gives_it(release: Path) -> None:
    with tarfile.open(release / f"rlfleet-chart-{NUMBER}.oci.tar") as archive:
        digest = image_files.blobs(archive)["manifest"].removeprefix("sha256:")
        held = archive.extractfile(f"blobs/sha256/{digest}")
        assert held is not None
        found = json.load(held)["annotations"]
    said = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())["annotations"]

    named = {f"org.opencontainers.image.{key}" for key in ("title", "version", "description")}
    assert set(found) == set(said) | named
    assert {key: found[key] for key in said} == said


def test_the_wheel_installs_and_its_programs_name_the_version(
    release: Path, tmp_path: Path
) -> None:
    """Its dependencies are the environment's: nothing is downloaded."""
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    wheel = str(release / f"rlfleet-{NUMBER}-py3-none-any.whl")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps"]
    subprocess.run([*install, "--no-index", "--quiet", wheel], check=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "needs.pth").write_text(sysconfig.get_path("purelib"))

    def said(*words: str) -> str:
        bare = {"PATH": os.defpath}
        done = subprocess.run(words, cwd=tmp_path, env=bare, check=True, capture_output=True)
        return done.stdout.decode().strip()

    assert said(str(python.parent / "kubectl-rlf"), "--version").endswith(NUMBER)
    code = "import rlfleet.publish, rlfleet.fleet as f; print(rlfleet.__version__, f.FleetClient)"
    assert said(str(python), "-c", code).startswith(NUMBER)
    assert said(str(python), "-m", "rlfleet_operator", "--version") == f"rlfleet {NUMBER}"
    about = "import importlib.metadata as m; print(m.metadata('rlfleet')['License-Expression'])"
    assert said(str(python), "-c", about) == "Apache-2.0"


def test_the_sources_hold_what_the_wheel_is_built_from_and_nothing_else(release: Path) -> None:
    with tarfile.open(release / f"rlfleet-{NUMBER}.tar.gz") as archive:
        folders = {name.split("/")[1] for name in archive.getnames()}

    assert {"operator", "sidecar", "client", "plugin"} < folders
    assert not folders & {"bench", "tests", "dev", "build"}
