"""The files of a release, in the order in which one needs another."""

import functools
import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev import environment, plugin, target
from dev.release import chart, distribution, images, provenance, sbom, version
from dev.release.signing import Key
from dev.steps import Step

SUMS = "SHA256SUMS"


@dataclass(frozen=True)
class Plan:
    """What a release is made from."""

    epoch: int
    """The time of every file in it: the commit's, or SOURCE_DATE_EPOCH."""
    commit: str
    key: Key | None
    """Signs it; None: it is not signed."""
    with_images: bool


def make_steps(folder: Path, plan: Plan) -> list[Step]:
    """Return the steps that fill an empty folder."""
    made = [
        Step("making wheel and sources", functools.partial(_distribution, folder, plan)),
        Step("making the kubectl plugin", functools.partial(_plugin, folder, plan)),
        *target.client_steps("helm"),
        Step("packaging the chart", functools.partial(_chart, folder, plan)),
    ]
    if plan.with_images:
        made += [Step("building the images", functools.partial(_images, folder, plan))]
    return [*made, Step("signing", functools.partial(_sign, folder, plan))]


def _distribution(folder: Path, plan: Plan) -> None:
    wheel, _ = distribution.make(folder, plan.epoch)
    sbom.write(wheel, sbom.of_wheel(wheel), plan.epoch, holds=False)


def _plugin(folder: Path, plan: Plan) -> None:
    plugin.make(folder)
    parts = sbom.of_installed(plugin.needs())
    sbom.write(folder / plugin.NAME, parts, plan.epoch, holds=True)


def _chart(folder: Path, plan: Plan) -> None:
    helm = shutil.which("helm", path=target.search_path())
    package, _ = chart.make(folder, str(helm), plan.epoch)
    sbom.write(package, [], plan.epoch, holds=True)


def _images(folder: Path, plan: Plan) -> str:
    counts = []
    for archive in images.make(folder, plan.epoch):
        parts = sbom.of_image(archive)
        sbom.write(archive, parts, plan.epoch, holds=True)
        counts.append(f"{archive.name}: {len(parts)} packages")
    return ", ".join(counts)


def _sign(folder: Path, plan: Plan) -> str:
    """Write provenance, checksums and, with a key, what proves both."""
    artefacts = sorted(folder.iterdir())
    title = f"rlfleet-{version.current()}.provenance.json"
    statement = provenance.statement(artefacts, plan.commit, _parameters(plan))
    if plan.key is None:
        (folder / title).write_bytes(statement)
    else:
        (folder / title).write_text(plan.key.envelope(statement))
        (folder / f"rlfleet-{version.current()}.pub").write_bytes(plan.key.public())
    sums = "".join(f"{sha256(path)}  {path.name}\n" for path in sorted(folder.iterdir()))
    (folder / SUMS).write_text(sums)
    if plan.key is None:
        return "not signed"
    (folder / f"{SUMS}.sig").write_text(plan.key.sign_as_text(sums.encode()) + "\n")
    return f"{len(artefacts)} files"


def _parameters(plan: Plan) -> dict[str, Any]:
    """Return what a releaser has chosen, without which nobody makes the same bytes."""
    uri = environment.variable("PLUGIN_URI")
    chosen = {"PLUGIN_URI": uri} if uri else {}
    return {"images": plan.with_images, "SOURCE_DATE_EPOCH": plan.epoch, **chosen}


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file of any size."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
