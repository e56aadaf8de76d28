"""By which right a trainer asks the API server: its pod's, or that of a kubeconfig."""

import json
import stat
import sys
from pathlib import Path

import pytest

from rlfleet.fleet import FleetError, SpecClient, kube_access
from tests.certificates import Authority


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "account"
    folder.mkdir()
    for name, text in (("token", "one\n"), ("namespace", "rl"), ("ca.crt", Authority().pem)):
        (folder / name).write_text(text)
    monkeypatch.setattr(kube_access, "SERVICE_ACCOUNT", folder)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return folder


def kubeconfig(path: Path, **cluster: str) -> Path:
    """Write one whose user logs in by a program, which gives another token each time."""
    program, count = path.with_name("login"), path.with_name("count")
    program.write_text(f"""#!/bin/sh
echo x >> {count}
echo '{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
"status": {{"token": "'$(wc -l < {count} | tr -d ' ')'",
"expirationTimestamp": "2020-01-01T00:00:00Z"}}}}'
""")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    ca = path.with_name("ca.crt")
    ca.write_text(Authority().pem)
    login = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(program),
        "interactiveMode": "Never",
    }
    contexts = [
        {"name": "plain", "context": {"cluster": "c", "user": "u"}},
        {"name": "named", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
    ]
    where = {"server": "https://api.example:6443", "certificate-authority": str(ca)}
    text = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": where | cluster}],
        "users": [{"name": "u", "user": {"exec": login}}],
        "contexts": contexts,
        "current-context": "plain",
    }
    path.write_text(json.dumps(text))
    return path


def test_a_pod_asks_as_its_account_with_the_token_of_the_moment(account: Path) -> None:
    found = kube_access.access_of(None, None)
    before = found.authorization()
    (account / "token").write_text("two")

    assert (found.server, found.namespace) == ("https://[fd00::1]:443", "rl")
    assert [before, found.authorization()] == ["Bearer one", "Bearer two"]


def test_a_token_that_is_gone_says_what_the_pod_needs(account: Path) -> None:
    found = kube_access.access_of(None, None)
    (account / "token").unlink()

    with pytest.raises(FleetError, match="automountServiceAccountToken: true"):
        found.authorization()


@pytest.mark.parametrize(("context", "namespace"), [(None, "default"), ("named", "team")])
def test_a_kubeconfig_that_is_named_counts_in_a_pod_too(
    account: Path, tmp_path: Path, context: str | None, namespace: str
) -> None:
    path = kubeconfig(tmp_path / "config", **{"tls-server-name": "other.example"})
    found = kube_access.access_of(path, context)

    assert (found.server, found.namespace) == ("https://api.example:6443", namespace)
    assert found.server_name == "other.example"
    first, second = found.authorization(), found.authorization()
    assert str(first).startswith("Bearer ")
    # The program's token has expired, so it is asked again.
    assert first != second


def test_without_account_and_kubeconfig_the_error_names_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_access, "SERVICE_ACCOUNT", tmp_path / "none")
    with pytest.raises(FleetError, match="no ServiceAccount is mounted here, and no kubeconfig"):
        SpecClient("qwen", kubeconfig=tmp_path / "none")
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(FleetError, match=r"pip install 'rlfleet\[kubeconfig\]'"):
        SpecClient("qwen")
