"""Definitions (CRDs) of other projects, as their makers publish them on the Go module proxy.

The tests' API server has them, so that it checks every field of what the chart, the pages and the
examples hold for these projects. Nothing is compiled, and 36 MB are downloaded once.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from dev import cache, golang
from dev.gitops import tools
from dev.gitops.tools import Published
from dev.steps import Step

PROMETHEUS_OPERATOR = Published(
    "github.com/prometheus-operator/prometheus-operator",
    "v0.94.1",
    "h1:QEIb2wenPH+SdMN1xMf8l4Pmj00YYXXI6HlbLlQWkww=",
)
_MONITORING = "example/prometheus-operator-crd/monitoring.coreos.com_{}.yaml"
_FLUX = "github.com/fluxcd/kustomize-controller"
_LABEL = re.compile(r"^ +[\w./-]+: '\{\{.*\n", re.MULTILINE)


@functools.cache
def _needed() -> Mapping[Published, Sequence[str]]:
    """Return the files that are needed of each module."""
    kinds = ("podmonitors", "servicemonitors", "prometheusrules")
    return {
        PROMETHEUS_OPERATOR: [_MONITORING.format(kind) for kind in kinds],
        tools.CERT_MANAGER: ["deploy/crds/crd-certificates.yaml"],
        tools.KEDA: ["config/crd/bases/keda.sh_scaledobjects.yaml"],
        tools.ARGO_CD: ["manifests/crds/application-crd.yaml"],
        Published(_FLUX, *golang.pinned(tools.FLUX, _FLUX)): [
            "config/crd/bases/kustomize.toolkit.fluxcd.io_kustomizations.yaml"
        ],
    }


def folder() -> Path:
    """Return where the definitions lie once they are there."""
    pins = [f"{one.path} {one.version} {one.checksum} {files}" for one, files in _needed().items()]
    return cache.root() / "definitions" / cache.digest(*pins)


def make_steps() -> list[Step]:
    """Return the step that downloads the modules, or none."""
    return [] if folder().exists() else [Step("getting definitions of other projects", _make)]


def _make() -> None:
    with cache.lock("definitions"):
        # Another process may have made them while this one waited.
        if folder().exists():
            return
        unfinished = cache.folder("definitions", f"{folder().name}.unfinished")
        for module, files in _needed().items():
            source = module.folder()
            for name in files:
                text = usable((source / name).read_text())
                (unfinished / Path(name).name).write_text(text)
        unfinished.rename(folder())


def usable(text: str) -> str:
    """Return a definition without the labels that only its maker's chart can fill in."""
    return _LABEL.sub("", text)
