"""What runs on the node: each component's configuration and command line.

Pure descriptions again; the supervisor starts them in this order, each one when
what it needs answers. The unusual settings are there because the machine may
itself be a small virtual one: few capabilities, cgroup v1, no swap accounting.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from dev import binaries, controlplane
from dev.node import layout


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
    token = controlplane.write_credentials(at, kubelet_user)
    controlplane.write_private(layout.kubeconfig(), controlplane.kubeconfig(at.url, token, at.ca))
    etcd, api = f"tcp:127.0.0.1:{at.etcd_port}", f"tcp:{layout.NODE_ADDRESS}:{at.apiserver_port}"
    services = controlplane.apiserver(at, bind="0.0.0.0", services=layout.SERVICE_RANGE)
    components = [
        Component(
            "containerd",
            ["containerd", "--config", _containerd(pause_image, "containerd", cri=True)],
            [],
        ),
        Component("etcd", controlplane.etcd(at), []),
        Component("apiserver", services, [etcd]),
        Component("kubelet", _kubelet(at), [api, f"unix:{layout.CONTAINERD_SOCKET}"]),
        Component("controller-manager", controlplane.controller_manager(at, 10257), [api]),
        Component("scheduler", _scheduler(at), [api]),
        Component("proxy", _proxy(at), [api]),
    ]
    return {
        "components": [asdict(component) for component in components],
        "sweeper": ["containerd", "--config", _containerd(pause_image, "sweeper", cri=False)],
        "state": str(layout.state()),
        "logs": str(layout.logs()),
        "report": str(layout.report_file()),
    }


def _write(name: str, text: str) -> str:
    path = layout.state() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def _containerd(pause_image: str, name: str, *, cri: bool) -> str:
    network = {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            # Routed, not bridged: an answer to a service then always passes the
            # node's address translation, with no need for br_netfilter.
            {
                "type": "ptp",
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": layout.POD_RANGE}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
    _write("cni/pods.conflist", json.dumps(network))
    root = layout.containerd_root()
    disabled = [] if cri else ["io.containerd.grpc.v1.cri"]
    return _write(
        f"{name}.toml",
        f"""version = 2
root = "{root}"
state = "/run/containerd"
disabled_plugins = {json.dumps(disabled)}
[grpc]
  address = "{layout.CONTAINERD_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{root}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause_image}"
  disable_apparmor = true
  # Without CAP_SYS_RESOURCE no process may make itself less likely to be killed.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{layout.state() / "cni"}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
""",
    )


def _kubelet(at: controlplane.Endpoints) -> list[str]:
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "0.0.0.0",
        # Only kube-apiserver reaches the port, see boot.py's firewall rule.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{layout.CONTAINERD_SOCKET}",
        "clusterDNS": [layout.DNS_ADDRESS],
        "clusterDomain": layout.CLUSTER_DOMAIN,
        # Nothing to forward to: the cluster is hermetic.
        "resolvConf": _write("resolv.conf", ""),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.CGROUP}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False,
        # Images come from nowhere but `make images`; none may be collected.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {},
        "maxPods": 250,
        "serializeImagePulls": False,
        "oomScoreAdj": 0,
        # A fault campaign makes hundreds of pods at once.
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "eventRecordQPS": 0,
        "volumePluginDir": str(Path("/var/lib/kubelet/volume-plugins")),
    }
    return [
        str(binaries.path("kubelet")),
        f"--config={_write('kubelet.json', json.dumps(config, indent=1))}",
        f"--kubeconfig={at.kubeconfig('kubelet')}",
        f"--hostname-override={layout.NODE_NAME}",
        f"--node-ip={layout.NODE_ADDRESS}",
    ]


def _scheduler(at: controlplane.Endpoints) -> list[str]:
    return [
        str(binaries.path("kube-scheduler")),
        f"--kubeconfig={at.kubeconfig('scheduler')}",
        # With it a pod is retried so soon after its claim was bound that the
        # claim's cache may lag, and then not again for five minutes (seen).
        "--feature-gates=SchedulerPopFromBackoffQ=false",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
    ]


def _proxy(at: controlplane.Endpoints) -> list[str]:
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
