"""Kubernetes, CoreDNS, helm and our pause program, compiled from the Go module proxy.

dev/cluster/go.mod pins everything; go.sum makes it the same bytes everywhere.
Binaries are cached under the hash of the module's files and of the compiler, so only
a changed pin or a changed Go needs a build. A cold build takes 6 to 9 minutes on two
cores.
"""

import functools
import re
from pathlib import Path

from dev import cache, golang, steps
from dev.steps import Step

MODULE = cache.REPOSITORY / "dev" / "cluster"

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


@functools.cache
def _key() -> str:
    return golang.key(MODULE, *_link_flags())


def _build(name: str, package: str) -> None:
    golang.build(package, MODULE, path(name), _link_flags())


@functools.cache
def _link_flags() -> tuple[str, ...]:
    """Return the linker flags that set the programs' version."""
    pins = dict(re.findall(r"^\t(\S+) (v\S+)$", (MODULE / "go.mod").read_text(), re.MULTILINE))
    kubernetes, helm = pins["k8s.io/kubernetes"], pins["helm.sh/helm/v3"]
    major, minor = kubernetes.removeprefix("v").split(".")[:2]
    values = {
        "k8s.io/component-base/version.gitVersion": kubernetes,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/client-go/pkg/version.gitVersion": kubernetes,
        "helm.sh/helm/v3/internal/version.version": helm,
        # The cluster that `helm lint` and `helm template` assume.
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": major,
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": minor,
        "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor": major,
        "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor": minor,
    }
    return ("-s", "-w", *(f"-X {name}={value}" for name, value in values.items()))


def main() -> None:
    """Build everything and print where it is."""
    steps.run(build_steps(NODE, CLIENTS))
    steps.say(str(path("kubectl").parent))


if __name__ == "__main__":
    steps.main(main)
