"""What an artefact is made of, as SPDX's own library reads it back."""

import json
from pathlib import Path

import pytest
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

from dev.release import sbom
from dev.release.sbom import Part


@pytest.mark.parametrize(
    ("said", "declared"),
    [
        ("MIT", "MIT"),
        ("Apache-2.0 AND BSD-2-Clause", "Apache-2.0 AND BSD-2-Clause"),
        ("MPL-2.0 OR (MIT AND ISC)", "MPL-2.0 OR (MIT AND ISC)"),
        ("Apache 2.0", "NOASSERTION"),
        ("Copyright (c) by its authors. All rights reserved.\n\nRedistribution", "NOASSERTION"),
        ("", "NOASSERTION"),
    ],
)
def test_a_licence_is_declared_if_spdx_knows_it(tmp_path: Path, said: str, declared: str) -> None:
    artefact = tmp_path / "image.tar"
    artefact.write_bytes(b"an image")

    written = sbom.write(artefact, [Part("a", "1", "pkg:pypi/a@1", said)], 0, holds=True)

    assert validate_full_spdx_document(parse_file(str(written))) == []
    part = json.loads(written.read_text())["packages"][1]
    assert part["licenseDeclared"] == declared


def test_what_is_held_and_what_is_demanded_are_different_relations(tmp_path: Path) -> None:
    artefact = tmp_path / "wheel"
    artefact.write_bytes(b"a wheel")
    kinds = set()
    for holds in (True, False):
        written = sbom.write(artefact, [Part("a", ">=1", "pkg:pypi/a")], 0, holds=holds)
        links = json.loads(written.read_text())["relationships"]
        kinds.add(tuple(link["relationshipType"] for link in links))

    assert kinds == {("DESCRIBES", "CONTAINS"), ("DESCRIBES", "DEPENDS_ON")}
