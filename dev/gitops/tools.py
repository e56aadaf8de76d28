"""Argo CD, Flux, KEDA, prometheus-adapter and cert-manager, compiled as their makers pin them.

All come from the Go module proxy. A cold build takes 25 minutes on two cores, so what needs them
is no part of `make test`: `make test-tools`.
"""

from dataclasses import dataclass
from pathlib import Path

from dev import cache, golang, steps
from dev.steps import Step

FLUX = cache.REPOSITORY / "dev" / "gitops" / "flux"
_FLAGS = ("-s", "-w")


@dataclass(frozen=True)
class Published:
    """A module that is compiled as its makers pin it."""

    path: str
    version: str
    checksum: str
    """As in go.sum."""

    def folder(self) -> Path:
        """Return its source, downloaded."""
        return golang.source(self.path, self.version, self.checksum)

    def key(self) -> str:
        """Name what is compiled from it with this compiler."""
        version = golang.compiler(cache.REPOSITORY)
        return cache.digest(self.path, self.version, self.checksum, version, *_FLAGS)


KEDA = Published(
    "github.com/kedacore/keda/v2",
    "v2.21.0",
    "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps=",
)
PROMETHEUS_ADAPTER = Published(
    "sigs.k8s.io/prometheus-adapter",
    "v0.12.0",
    "h1:e29A6BIwA/NKxPZeuamBMHJsvz0sSUXTb92Obg7RMV4=",
)
ARGO_CD = Published(
    "github.com/argoproj/argo-cd/v3",
    "v3.2.6",
    "h1:nDCjBnHyxUf6JFuCKjuuXHS23LFj6/TjuO/APrS1ku4=",
)
CERT_MANAGER = Published(
    "github.com/cert-manager/cert-manager",
    "v1.11.5",
    "h1:K2LurvwIE4hIhODQZnkOW6ljYe3lVMAliS/to+gI05o=",
)
"""The last whose controller is in this module."""
_PROGRAMS = {
    "cert-manager": (CERT_MANAGER, "./cmd/controller"),
    "keda-operator": (KEDA, "./cmd/operator"),
    "keda-adapter": (KEDA, "./cmd/adapter"),
    "prometheus-adapter": (PROMETHEUS_ADAPTER, "./cmd/adapter"),
    "argocd": (ARGO_CD, "./cmd"),
}
_CONTROLLERS = ("source-controller", "kustomize-controller")
"""Flux's. They are pinned by a module of ours: their own replaces a folder of the repository that
no module of the proxy has."""
NAMES = (*_PROGRAMS, *_CONTROLLERS)


def path(name: str) -> Path:
    """Return where a program lies once it is built."""
    if name in _CONTROLLERS:
        return cache.root() / "bin" / golang.key(FLUX, *_FLAGS) / name
    return cache.root() / "bin" / _PROGRAMS[name][0].key() / name


def controller(name: str) -> Path:
    """Return the source of one of Flux's controllers, downloaded."""
    return golang.required(FLUX, f"github.com/fluxcd/{name}")


def build_steps() -> list[Step]:
    """Return one step per program that is not built yet."""
    return golang.build_steps(NAMES, path, _build)


def _build(name: str) -> None:
    if name in _CONTROLLERS:
        golang.build(f"github.com/fluxcd/{name}", FLUX, path(name), _FLAGS)
    else:
        module, package = _PROGRAMS[name]
        golang.build(package, module.folder(), path(name), _FLAGS)


def main() -> None:
    """Build all and print where they are."""
    steps.run(build_steps())
    for name in NAMES:
        steps.say(str(path(name)))


if __name__ == "__main__":
    steps.main(main)
