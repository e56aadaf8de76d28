"""What doctor gathers where the definition is missing, and where no API server answers."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rlfleet_kubectl.commands import diagnosing
from rlfleet_kubectl.core.doctor.diagnosis import Examined, diagnosed
from rlfleet_kubectl.errors import PluginError
from rlfleet_kubectl.kubectl import Kubectl

pytestmark = pytest.mark.integration

EXTENSIONS = "apiextensions.k8s.io"
VERSION = {"groupVersion": f"{EXTENSIONS}/v1", "version": "v1"}
LISTS = {
    "/api": {"kind": "APIVersions", "versions": []},
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [{"name": EXTENSIONS, "versions": [VERSION], "preferredVersion": VERSION}],
    },
    f"/apis/{EXTENSIONS}/v1": {
        "kind": "APIResourceList",
        **VERSION,
        "resources": [
            {
                "name": "customresourcedefinitions",
                "singularName": "customresourcedefinition",
                "shortNames": ["crd"],
                "namespaced": False,
                "kind": "CustomResourceDefinition",
                "verbs": ["get"],
            }
        ],
    },
}
NOT_FOUND = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}


class _BareServer(BaseHTTPRequestHandler):
    """Answers as an API server that has definitions, and not that of fleets."""

    def do_GET(self) -> None:
        said = LISTS.get(self.path.partition("?")[0])
        body = json.dumps(said or NOT_FOUND).encode()
        self.send_response(200 if said else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def bare() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _BareServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def gathered(url: str, cache: Path, *, all_namespaces: bool) -> Examined:
    kubectl = Kubectl((f"--server={url}", "--kubeconfig=/dev/null", f"--cache-dir={cache}"))
    return diagnosing.gathered(kubectl, "sys", fleet=None, all_namespaces=all_namespaces)


@pytest.mark.parametrize("all_namespaces", [True, False])
def test_that_the_definition_is_missing_is_a_finding(
    bare: str, tmp_path: Path, *, all_namespaces: bool
) -> None:
    seen = gathered(bare, tmp_path, all_namespaces=all_namespaces)
    found = diagnosed(seen, diagnosing.knowledge())

    assert [one.check for one in found] == ["DefinitionMissing"]


@pytest.mark.parametrize("all_namespaces", [True, False])
def test_without_an_api_server_there_is_no_diagnosis(
    tmp_path: Path, *, all_namespaces: bool
) -> None:
    with pytest.raises(PluginError, match=r"The connection to the server .* was refused"):
        gathered("http://127.0.0.1:1", tmp_path, all_namespaces=all_namespaces)
