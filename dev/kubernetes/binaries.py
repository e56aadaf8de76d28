"""Kubernetes, CoreDNS, helm and our pause program, compiled from the Go module proxy.

dev/cluster/go.mod pins everything; go.sum makes it the same bytes everywhere.
Binaries are cached under the hash of the module's files and of the compiler, so only
a changed pin or a changed Go needs a build. A cold build takes 6 to 9 minutes on two
cores. KUBERNETES=1.30 takes Kubernetes from dev/kubernetes/releases/1.30/go.mod instead.
"""

import functools
import re
from pathlib import Path

from dev import cache, environment, golang, steps
from dev.steps import Step, StepFailed

MODULE = cache.REPOSITORY / "dev" / "cluster"
RELEASES = cache.REPOSITORY / "dev" / "kubernetes" / "releases"

KUBERNETES = {
    name: f"k8s.io/kubernetes/cmd/{name}"
    for name in (
        "kube-apiserver",
        "kubelet",
        "kube-controller-manager",
        "kube-scheduler",
        "kube-proxy",
        "kubectl",
    )
}
CONTROL_PLANE = {
    name: KUBERNETES[name] for name in ("kube-apiserver", "kube-controller-manager", "kubectl")
}
NODE = {**KUBERNETES, "coredns": "./coredns", "pause": "./pause"}
CLIENTS = {"kubectl": KUBERNETES["kubectl"], "helm": "helm.sh/helm/v3/cmd/helm"}


def path(name: str) -> Path:
    """Return where a binary lies once it is built."""
    return cache.root() / "bin" / _key() / name


def build_steps(*wanted: dict[str, str]) -> list[Step]:
    """Return one step per binary that is not built yet."""
    packages = {name: package for table in wanted for name, package in table.items()}
    return [
        Step(f"building {name}", functools.partial(_build, name, package))
        for name, package in packages.items()
        if not path(name).exists()
    ]


def release() -> str:
    """Return the release of Kubernetes that is built, such as v1.34.4."""
    return _pins(_kubernetes())["k8s.io/kubernetes"]


def minor() -> int:
    """Return the release's minor version, such as 34."""
    return int(release().split(".")[1])


def releases() -> list[str]:
    """Return what KUBERNETES may name, the oldest first."""
    return sorted((path.parent.name for path in RELEASES.glob("*/go.mod")), key=_numbers)


def _kubernetes() -> Path:
    """Return the module that pins Kubernetes: the one that KUBERNETES names, or the default."""
    name = environment.variable("KUBERNETES")
    if not name:
        return MODULE
    if name not in releases():
        raise StepFailed(
            f"KUBERNETES={name} has no module in dev/kubernetes/releases; there are "
            f"{', '.join(releases())}, and {_pins(MODULE)['k8s.io/kubernetes']} without it"
        )
    return RELEASES / name


@functools.cache
def _key() -> str:
    other = () if _kubernetes() == MODULE else (golang.key(_kubernetes()),)
    return golang.key(MODULE, *_link_flags(), *other)


def _build(name: str, package: str) -> None:
    module = _kubernetes() if name in KUBERNETES else MODULE
    # Releases up to 1.30 have cloud providers in them, which nothing here needs.
    golang.build(package, module, path(name), _link_flags(), tags=["providerless"])


def _pins(module: Path) -> dict[str, str]:
    lines = (module / "go.mod").read_text()
    return dict(re.findall(r"^(?:\t|require )(\S+) (v\S+)$", lines, re.MULTILINE))


def _numbers(release: str) -> list[int]:
    return [int(part) for part in release.split(".")]


@functools.cache
def _link_flags() -> tuple[str, ...]:
    """Return the linker flags that set the programs' version."""
    kubernetes, helm = release(), _pins(MODULE)["helm.sh/helm/v3"]
    major, middle = kubernetes.removeprefix("v").split(".")[:2]
    values = {
        "k8s.io/component-base/version.gitVersion": kubernetes,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": middle,
        "k8s.io/client-go/pkg/version.gitVersion": kubernetes,
        "helm.sh/helm/v3/internal/version.version": helm,
        # The cluster that `helm lint` and `helm template` assume.
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": major,
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": middle,
        "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor": major,
        "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor": middle,
    }
    return ("-s", "-w", *(f"-X {name}={value}" for name, value in values.items()))


def main() -> None:
    """Build everything and print where it is."""
    steps.run(build_steps(NODE, CLIENTS))
    steps.say(str(path("kubectl").parent))


if __name__ == "__main__":
    steps.main(main)
