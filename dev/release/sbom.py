"""What an artefact is made of, as SPDX 2.3, written and checked by the SPDX project's library.

The parts of an image are read from the image: Debian's packages from dpkg's status, Python's from
their metadata. Those of the plugin are what it holds; those of the wheel are what it demands.
"""

import datetime as dt
import hashlib
import importlib.metadata
import io
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from license_expression import ExpressionError, LicenseExpression, get_spdx_licensing
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from spdx_tools.spdx.model import (
    Actor,
    ActorType,
    Checksum,
    ChecksumAlgorithm,
    CreationInfo,
    Document,
    ExternalPackageRef,
    ExternalPackageRefCategory,
    Package,
    PackagePurpose,
    Relationship,
    RelationshipType,
    SpdxNoAssertion,
)
from spdx_tools.spdx.writer.json.json_writer import write_document_to_stream

from dev.release import image_files, version

SUFFIX = ".spdx.json"
NAMESPACE = "https://spdx.invalid/rlfleet"
"""Of documents: unique, and no address, as SPDX allows."""


@dataclass(frozen=True, order=True)
class Part:
    """A package that an artefact holds or demands."""

    name: str
    version: str
    purl: str
    licence: str = ""


def of_wheel(path: Path) -> list[Part]:
    """Return what the wheel demands, extras included."""
    with zipfile.ZipFile(path) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        about = _headers(wheel.read(name))
    needs = [Requirement(line) for line in about.get_all("Requires-Dist", ())]
    ours = {"rlfleet"}
    return sorted({_demanded(need) for need in needs if need.name not in ours})


def _demanded(need: Requirement) -> Part:
    name = canonicalize_name(need.name)
    return Part(name, str(need.specifier), f"pkg:pypi/{name}")


def of_installed(names: Iterable[str]) -> list[Part]:
    """Return packages of this environment, which the plugin holds."""
    found = (importlib.metadata.distribution(name) for name in names)
    return sorted(_python(package.read_text("METADATA") or "") for package in found)


def of_image(archive: Path) -> list[Part]:
    """Return Debian's and Python's packages in an image."""
    files = image_files.read(archive, (image_files.DPKG, image_files.PYTHON))
    parts = {_python(text) for name, text in files.items() if name.endswith("METADATA")}
    status = files.get(image_files.DPKG, "")
    parts |= {_debian(paragraph) for paragraph in status.split("\n\n") if paragraph.strip()}
    return sorted(parts)


def _python(metadata: str) -> Part:
    about = _headers(metadata.encode())
    name = canonicalize_name(about["Name"])
    licence = about.get("License-Expression") or about.get("License") or ""
    purl = f"pkg:pypi/{name}@{about['Version']}"
    return Part(name, about["Version"], purl, licence)


def _debian(paragraph: str) -> Part:
    about = _headers(paragraph.encode())
    name, number = about["Package"], about["Version"]
    escaped = number.replace("+", "%2B").replace(":", "%3A")
    return Part(name, number, f"pkg:deb/debian/{name}@{escaped}?arch={about['Architecture']}")


def _headers(content: bytes) -> Message:
    return HeaderParser().parsestr(content.decode())


def write(artefact: Path, parts: Iterable[Part], epoch: int, *, holds: bool) -> Path:
    """Write the document of an artefact beside it; raises if it is not valid. Return its path."""
    with artefact.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    root = _root(artefact, digest)
    kind = RelationshipType.CONTAINS if holds else RelationshipType.DEPENDS_ON
    packages = [_package(number, part) for number, part in enumerate(parts, 1)]
    links = [Relationship("SPDXRef-DOCUMENT", RelationshipType.DESCRIBES, root.spdx_id)]
    links += [Relationship(root.spdx_id, kind, package.spdx_id) for package in packages]
    document = Document(
        CreationInfo(
            spdx_version="SPDX-2.3",
            spdx_id="SPDXRef-DOCUMENT",
            name=artefact.name,
            document_namespace=f"{NAMESPACE}/{artefact.name}/{digest}",
            creators=[Actor(ActorType.TOOL, f"rlfleet-release-{version.current()}")],
            created=dt.datetime.fromtimestamp(epoch, dt.UTC).replace(tzinfo=None),
        ),
        packages=[root, *packages],
        relationships=links,
    )
    written = io.StringIO()
    write_document_to_stream(document, written, validate=True)
    path = artefact.with_name(artefact.name + SUFFIX)
    path.write_text(written.getvalue() + "\n")
    return path


def _root(artefact: Path, digest: str) -> Package:
    return Package(
        spdx_id="SPDXRef-Artefact",
        name=artefact.name,
        version=version.current(),
        download_location=SpdxNoAssertion(),
        files_analyzed=False,
        checksums=[Checksum(ChecksumAlgorithm.SHA256, digest)],
        license_declared=_licence("Apache-2.0"),
        primary_package_purpose=PackagePurpose.ARCHIVE,
    )


def _package(number: int, part: Part) -> Package:
    purl = ExternalPackageRef(ExternalPackageRefCategory.PACKAGE_MANAGER, "purl", part.purl)
    return Package(
        spdx_id=f"SPDXRef-Package-{number}",
        name=part.name,
        version=part.version or None,
        download_location=SpdxNoAssertion(),
        files_analyzed=False,
        license_declared=_licence(part.licence),
        external_references=[purl],
    )


def _licence(said: str) -> LicenseExpression | SpdxNoAssertion:
    """Return a licence by SPDX's names; whole texts and other names are no assertion."""
    try:
        found = get_spdx_licensing().parse(said, validate=True)
    except ExpressionError:
        return SpdxNoAssertion()
    # An expression has no truth.
    return SpdxNoAssertion() if found is None else found
