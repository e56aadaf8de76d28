"""docs/how-to/security.md with cert-manager: what it issues, a fleet serves with.

Its controller is the last that the module proxy has (1.11); later ones know the same API.
"""

import asyncio
import base64
import json
import re
import ssl
import subprocess
from pathlib import Path
from textwrap import dedent
from typing import Any

import httpx
import pytest
import yaml
from cryptography import x509

from dev.gitops import tools
from dev.kubernetes import apiserver
from dev.servers import Servers
from rlfleet_contract.tls import CA_KEY, CERTIFICATE_KEY, PRIVATE_KEY
from rlfleet_operator.core.manifests.sidecar_tls import server_name
from tests.certificates import mounted
from tests.hollow import HollowNode
from tests.integration.conftest import IMAGES, ROOT, Fleet, Operator, kubectl, until
from tests.integration.tools.conftest import define

pytestmark = pytest.mark.integration
PAGE = ROOT / "docs" / "how-to" / "security.md"
SECRET = "qwen-tls"
_AUTHORITY = """
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: root}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: authority}
spec:
  isCA: true
  commonName: authority
  secretName: authority
  privateKey: {algorithm: ECDSA}
  issuerRef: {name: root, kind: ClusterIssuer}
---
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: internal}
spec: {ca: {secretName: authority}}
"""


class CertManager:
    """The controller of one namespace."""

    def __init__(self, plane: apiserver.ControlPlane, namespace: str) -> None:
        self._plane, self._namespace = plane, namespace

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl in its namespace."""
        return kubectl(self._plane, f"-n={self._namespace}", *words, stdin=stdin).stdout

    async def issued(self, secret: str, other_than: str = "") -> dict[str, str]:
        """Wait for a certificate; return its Secret's data."""
        found: dict[str, str] = {}

        async def is_there() -> bool:
            words = ("get", "secret", secret, "-o", "json", "--ignore-not-found")
            text = await asyncio.to_thread(self.kubectl, *words)
            data = json.loads(text)["data"] if text else {}
            found.update({key: base64.b64decode(data[key]).decode() for key in data})
            return found.get(CERTIFICATE_KEY, other_than) != other_than

        async def described() -> str:
            return self.kubectl("describe", "certificates,certificaterequests,clusterissuers")

        await until(is_there, describe=described)
        return {key: found[key] for key in (CERTIFICATE_KEY, PRIVATE_KEY, CA_KEY)}

    def renew(self, certificate: str) -> None:
        """Ask for another certificate now, as `cmctl renew` does."""
        condition = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered"}
        body = json.dumps({"status": {"conditions": [condition]}})
        words = ("patch", "certificate", certificate, "--subresource=status", "--type=merge")
        self.kubectl(*words, "-p", body)


@pytest.fixture
def cert_manager(
    plane: apiserver.ControlPlane, servers: Servers, namespace: str, tmp_path: Path
) -> CertManager:
    define(plane, _definitions(tools.CERT_MANAGER.folder() / "deploy" / "crds", tmp_path))
    argv = [str(tools.path("cert-manager")), f"--kubeconfig={plane.kubeconfig}"]
    argv += ["--leader-elect=false", f"--cluster-resource-namespace={namespace}"]
    servers.start("cert-manager", [*argv, "--metrics-listen-address=127.0.0.1:0"])
    manager = CertManager(plane, namespace)
    manager.kubectl("apply", "-f", "-", stdin=_AUTHORITY)
    return manager


def _definitions(folder: Path, scratch: Path) -> list[Path]:
    """Return the CRDs without what only its chart can fill in: labels."""
    made = []
    for path in folder.glob("crd-*.yaml"):
        crd = yaml.safe_load(path.read_text())
        del crd["metadata"]["labels"]
        made.append(scratch / path.name)
        made[-1].write_text(yaml.safe_dump(crd))
    return made


def of_the_page(namespace: str) -> str:
    """Return the Certificate of the page, for a namespace."""
    found = r"\n(    apiVersion: cert-manager.*\n(?:    .*\n)+)"
    (block,) = re.findall(found, PAGE.read_text())
    return dedent(block).replace(".default.svc", f".{namespace}.svc")


def of_the_chart(namespace: str) -> str:
    """Return the Certificate of the fleet API, as the page's command makes it."""
    issuer = ("name=internal", "kind=ClusterIssuer")
    sets = [f"--set=operator.fleetsTLS.issuer.{one}" for one in issuer]
    argv = ["helm", "template", "rlfleet", str(ROOT / "charts/rlfleet"), *IMAGES, *sets]
    argv += [f"--namespace={namespace}", "--show-only=templates/service.yaml"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60)
    made: list[Any] = [one for one in yaml.safe_load_all(done.stdout) if one]
    return yaml.safe_dump_all(one for one in made if one["kind"] == "Certificate")


async def test_a_fleet_serves_with_what_cert_manager_issues_and_renews(
    cert_manager: CertManager, operator: Operator, node: HollowNode, fleet: Fleet, tmp_path: Path
) -> None:
    await fleet.create(weightVersion="step-1", replicas=1)
    await fleet.synced()
    cert_manager.kubectl("apply", "-f", "-", stdin=of_the_page(fleet.namespace))
    issued = await cert_manager.issued(SECRET)
    folder = mounted(tmp_path / "mounted", issued)
    name = server_name(fleet.name, fleet.namespace)
    node.choose = lambda _: {"tls_dir": folder, "tls_name": name}
    await fleet.patch(sidecar={"tlsSecret": SECRET}, weightVersion="step-2")

    async def is_secure() -> bool:
        return all(pod.worker.admin_url.startswith("https://") for pod in node.pods.values())

    await until(is_secure, describe=fleet.describe)
    assert (await fleet.synced())["serving"] == "step-2"

    cert_manager.renew(SECRET)
    renewed = await cert_manager.issued(SECRET, other_than=issued[CERTIFICATE_KEY])
    assert renewed[CA_KEY] == issued[CA_KEY]
    mounted(folder, renewed)
    await fleet.patch(weightVersion="step-3")
    assert (await fleet.synced())["serving"] == "step-3"
    url = node.worker("qwen-0").admin_url
    assert await asyncio.to_thread(_presented, url) == renewed[CERTIFICATE_KEY].strip()


def _presented(url: str) -> str:
    """Return the certificate that a sidecar presents."""
    at = httpx.URL(url)
    return ssl.get_server_certificate((at.host, at.port or 443)).strip()


async def test_the_chart_s_certificate_is_issued_for_the_fleet_api(
    cert_manager: CertManager, namespace: str
) -> None:
    cert_manager.kubectl("apply", "-f", "-", stdin=of_the_chart(namespace))

    issued = await cert_manager.issued("rlfleet-tls")
    certificate = x509.load_pem_x509_certificate(issued[CERTIFICATE_KEY].encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert f"rlfleet.{namespace}.svc" in names.get_values_for_type(x509.DNSName)
