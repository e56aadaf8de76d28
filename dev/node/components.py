"""What runs on the node: each component's configuration and command line.

Pure descriptions again; the supervisor starts them in this order, each one when
what it needs answers. Configuration files are those in files/ with our names and
addresses put in.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

from dev.kubernetes import binaries, control_plane
from dev.node import layout

FILES = Path(__file__).parent / "files"
# Lines of kubelet.yaml, and the minor version of Kubernetes that brought them.
KUBELET_SINCE = {"failCgroupV1": 31, "featureGates": 32, "crashLoopBackOff": 32}
# The same for a gate of kube-scheduler.
POP_FROM_BACKOFF_SINCE = 33


@dataclass(frozen=True)
class Component:
    """A process of the node; it is started when every address in `after` accepts."""

    name: str
    argv: list[str]
    after: list[str]


def plan(pause_image: str) -> dict[str, object]:
    """Write every configuration file and return what the supervisor is to start."""
    at = layout.endpoints()
    kubelet_user = {"kubelet": (f"system:node:{layout.NODE_NAME}", "system:nodes")}
    token = control_plane.write_credentials(at, kubelet_user)
    admin = control_plane.kubeconfig(at.url, token, at.ca)
    control_plane.write_private(layout.kubeconfig(), admin)
    _write("cni/pods.conflist", filled("pods.conflist"))
    _write("resolv.conf", "")
    cri = "io.containerd.grpc.v1.cri"
    containerd = _write(
        "containerd.toml", filled("containerd.toml", PAUSE=pause_image, DISABLED="[]")
    )
    sweeper = _write("sweeper.toml", filled("containerd.toml", PAUSE="", DISABLED=f'["{cri}"]'))
    return {
        "components": [asdict(component) for component in _components(at, containerd)],
        "sweeper": ["containerd", "--config", sweeper],
        "state": str(layout.state()),
        "logs": str(layout.logs()),
        "report": str(layout.report_file()),
    }


def filled(name: str, **more: str) -> str:
    """Return a file of files/ with every @NAME@ in it replaced."""
    values = {
        "CGROUP": layout.CGROUP,
        "DNS": layout.DNS_ADDRESS,
        "DOMAIN": layout.CLUSTER_DOMAIN,
        "PODS": layout.POD_RANGE,
        "ROOT": str(layout.containerd_root()),
        "SOCKET": layout.CONTAINERD_SOCKET,
        "STATE": str(layout.state()),
        **more,
    }
    text = (FILES / name).read_text()
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def without_newer(config: str, minor: int) -> str:
    """Return kubelet's configuration without the lines that an older one would reject."""
    newer = tuple(f"{name}:" for name, since in KUBELET_SINCE.items() if minor < since)
    return "".join(line for line in config.splitlines(keepends=True) if not line.startswith(newer))


def _write(name: str, text: str) -> str:
    path = layout.state() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def _components(at: control_plane.Endpoints, containerd: str) -> list[Component]:
    etcd, api = f"tcp:127.0.0.1:{at.etcd_port}", f"tcp:{at.address}:{at.apiserver_port}"
    services = control_plane.apiserver(at, bind="0.0.0.0", services=layout.SERVICE_RANGE)
    return [
        Component("containerd", ["containerd", "--config", containerd], []),
        Component("etcd", control_plane.etcd(at), []),
        Component("apiserver", services, [etcd]),
        Component("kubelet", _kubelet(at), [api, f"unix:{layout.CONTAINERD_SOCKET}"]),
        Component("controller-manager", control_plane.controller_manager(at, 10257), [api]),
        Component("scheduler", _scheduler(at), [api]),
        Component("proxy", _proxy(at), [api]),
    ]


def _kubelet(at: control_plane.Endpoints) -> list[str]:
    config = without_newer(filled("kubelet.yaml"), binaries.minor())
    return [
        str(binaries.path("kubelet")),
        f"--config={_write('kubelet.yaml', config)}",
        f"--kubeconfig={at.kubeconfig('kubelet')}",
        f"--hostname-override={layout.NODE_NAME}",
        f"--node-ip={layout.NODE_ADDRESS}",
    ]


def _scheduler(at: control_plane.Endpoints) -> list[str]:
    # With it a pod is retried so soon after its claim was bound that the
    # claim's cache may lag, and then not again for five minutes (seen).
    has_gate = binaries.minor() >= POP_FROM_BACKOFF_SINCE
    return [
        str(binaries.path("kube-scheduler")),
        f"--kubeconfig={at.kubeconfig('scheduler')}",
        *(["--feature-gates=SchedulerPopFromBackoffQ=false"] if has_gate else []),
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
    ]


def _proxy(at: control_plane.Endpoints) -> list[str]:
    return [
        str(binaries.path("kube-proxy")),
        f"--kubeconfig={at.kubeconfig('proxy')}",
        f"--hostname-override={layout.NODE_NAME}",
        f"--cluster-cidr={layout.POD_RANGE}",
        "--proxy-mode=iptables",
        "--bind-address=127.0.0.1",
        "--oom-score-adj=0",
        # These kernel settings belong to the host; leave them as they are.
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0s",
        "--conntrack-tcp-timeout-close-wait=0s",
    ]
