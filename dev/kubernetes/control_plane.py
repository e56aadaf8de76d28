"""Command lines and credentials of etcd, kube-apiserver and kube-controller-manager.

Pure descriptions: both the one-node cluster (dev.node) and the bare API server of
the integration tests (dev.kubernetes.apiserver) start these, each in its own way. Users are
known by tokens in a file, so that every component has the identity and the RBAC
rules that it has in any other cluster, without a certificate authority of ours.
"""

import json
import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dev.kubernetes import audit, binaries

# user -> (token file column "user", groups)
USERS = {
    "admin": ("kubernetes-admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "proxy": ("system:kube-proxy", ""),
}


@dataclass(frozen=True)
class Endpoints:
    """Where one control plane listens and keeps its files."""

    state: Path
    address: str
    apiserver_port: int
    etcd_port: int
    etcd_peer_port: int

    @property
    def url(self) -> str:
        """Return where clients reach the API."""
        return f"https://{self.address}:{self.apiserver_port}"

    @property
    def ca(self) -> Path:
        """Return the certificate to trust; kube-apiserver makes it at its first start."""
        return self.state / "pki" / "apiserver.crt"

    def kubeconfig(self, user: str) -> Path:
        """Return the kubeconfig file of one of our users."""
        return self.state / f"{user}.kubeconfig"


def write_credentials(at: Endpoints, extra: dict[str, tuple[str, str]] | None = None) -> str:
    """Write tokens, a kubeconfig per user and a key; return the admin's token."""
    users = {**USERS, **(extra or {})}
    tokens = {name: secrets.token_hex(16) for name in users}
    (at.state / "pki").mkdir(parents=True, exist_ok=True)
    rows = [f'{tokens[name]},{user},{name},"{groups}"\n' for name, (user, groups) in users.items()]
    write_private(at.state / "tokens.csv", "".join(rows))
    for name, token in tokens.items():
        write_private(at.kubeconfig(name), kubeconfig(at.url, token, at.ca))
    key = at.state / "pki" / "service-accounts.key"
    curve = ["-name", "prime256v1", "-genkey", "-noout"]
    subprocess.run(
        ["openssl", "ecparam", *curve, "-out", str(key)], check=True, capture_output=True
    )
    return tokens["admin"]


def kubeconfig(url: str, token: str, ca: Path) -> str:
    """Return a kubeconfig (JSON is YAML)."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "rlfleet", "cluster": {"server": url, "certificate-authority": str(ca)}}
            ],
            "users": [{"name": "rlfleet", "user": {"token": token}}],
            "contexts": [{"name": "rlfleet", "context": {"cluster": "rlfleet", "user": "rlfleet"}}],
            "current-context": "rlfleet",
        },
        indent=1,
    )


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, complete or not at all."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.touch(mode=0o600)
    unfinished.write_text(text)
    unfinished.replace(path)


def etcd(at: Endpoints) -> list[str]:
    """Return etcd's command line; its data is worth nothing, so it never waits for a disk."""
    clients, peers = f"http://127.0.0.1:{at.etcd_port}", f"http://127.0.0.1:{at.etcd_peer_port}"
    return [
        "etcd",
        f"--data-dir={at.state / 'etcd'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        f"--quota-backend-bytes={4 << 30}",
        "--unsafe-no-fsync",
        "--logger=zap",
        "--log-level=warn",
    ]


def apiserver(at: Endpoints, bind: str, services: str) -> list[str]:
    """Return kube-apiserver's command line."""
    pki = at.state / "pki"
    return [
        str(binaries.path("kube-apiserver")),
        f"--etcd-servers=http://127.0.0.1:{at.etcd_port}",
        f"--bind-address={bind}",
        f"--advertise-address={at.address}",
        f"--secure-port={at.apiserver_port}",
        f"--cert-dir={pki}",
        f"--service-cluster-ip-range={services}",
        f"--token-auth-file={at.state / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        # As some distributions have it: whoever sets owner references may need more rights.
        "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
        "--allow-privileged",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki / 'service-accounts.key'}",
        f"--service-account-signing-key-file={pki / 'service-accounts.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        # From 1.37 a loopback address is rejected as the endpoint of the Service `kubernetes`.
        *(["--endpoint-reconciler-type=none"] if at.address == "127.0.0.1" else []),
        *audit.flags(at.state),
    ]


def controller_manager(
    at: Endpoints, secure_port: int, controllers: tuple[str, ...] = ("*",)
) -> list[str]:
    """Return kube-controller-manager's command line."""
    return [
        str(binaries.path("kube-controller-manager")),
        f"--kubeconfig={at.kubeconfig('controller-manager')}",
        f"--controllers={','.join(controllers)}",
        f"--service-account-private-key-file={at.state / 'pki' / 'service-accounts.key'}",
        f"--root-ca-file={at.ca}",
        "--use-service-account-credentials",
        # A claim made a moment before its volume waits for the next round.
        "--pvclaimbinder-sync-period=1s",
        # An autoscaler looks every 15 s otherwise.
        "--horizontal-pod-autoscaler-sync-period=1s",
        "--leader-elect=false",
        # Its start is hundreds of requests; the default allows twenty a second.
        "--kube-api-qps=300",
        "--kube-api-burst=600",
        "--bind-address=127.0.0.1",
        f"--secure-port={secure_port}",
    ]
