"""Names, addresses and folders of the development node: constants, decided once.

The node lives in its own Linux namespaces behind one veth pair. The host's end
has HOST_ADDRESS, the node's end NODE_ADDRESS; pods and services are reached
through the node. Pods are routed (CNI's ptp), not bridged: an answer to a service
then always passes the node's address translation, without br_netfilter, which a
kernel may lack. There is no default route inside: the cluster is hermetic, and
what reaches for the internet fails at once instead of hanging.
"""

from pathlib import Path

from dev import cache
from dev.kubernetes import control_plane

NODE_NAME = "rlfleet-dev"
HOST_LINK = "rlfleet0"
NODE_LINK = "eth0"
HOST_ADDRESS = "10.245.0.1"
NODE_ADDRESS = "10.245.0.2"
LINK_PREFIX = 30
POD_RANGE = "10.244.0.0/16"
SERVICE_RANGE = "10.96.0.0/16"
DNS_ADDRESS = "10.96.0.10"
CLUSTER_DOMAIN = "cluster.local"

KUBELET_PORT = 10250
CGROUP = "rlfleet"
CGROUP_ROOT = Path("/sys/fs/cgroup")
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
# containerd's own client, for the images and containers that Kubernetes sees.
CTR = ("ctr", "--address", CONTAINERD_SOCKET, "--namespace", "k8s.io")

# Kubernetes fixes the place of some files (/var/log/pods, /var/lib/kubelet,
# /var/lib/cni). Inside the namespaces an own folder is mounted over each of these,
# so the host's are neither seen nor touched; a hostPath volume must lie elsewhere.
PRIVATE_FOLDERS = ("/var/log", "/var/lib")


def state() -> Path:
    """Return what one run of the cluster writes; a new run starts with none of it."""
    return cache.root() / "cluster" / "state"


def logs() -> Path:
    """Return where each component's output is."""
    return cache.root() / "cluster" / "logs"


def kubeconfig() -> Path:
    """Return the cluster-admin kubeconfig for the host."""
    return cache.root() / "cluster" / "kubeconfig"


def holder_file() -> Path:
    """Return where the running node's holding process is written down.

    One place for the whole machine, gone after a reboot as the node is: a second
    node, of another cache, would take the same addresses.
    """
    return Path("/run/rlfleet-node.json")


def containerd_root() -> Path:
    """Return containerd's content and snapshots: images outlive the cluster."""
    return cache.root() / "containerd"


def report_file() -> Path:
    """Return the supervisor's report: each component's pid, and how it ended."""
    return state() / "components.json"


def endpoints() -> control_plane.Endpoints:
    """Return where the control plane listens."""
    return control_plane.Endpoints(
        state(), NODE_ADDRESS, apiserver_port=6443, etcd_port=2379, etcd_peer_port=2380
    )
