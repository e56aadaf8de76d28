"""The development node is found ready whatever kubectl makes of the host's kubeconfig."""

from pathlib import Path

import pytest

from dev.kubernetes import apiserver, control_plane
from dev.node import cluster, layout


def test_a_kubeconfig_that_kubectl_rewrote_hides_no_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kubectl config set-context --current --namespace=…`, as the demo advises, writes YAML."""
    monkeypatch.setenv("RLFLEET_CACHE", str(tmp_path))
    monkeypatch.setattr(apiserver, "is_ready", lambda _, token: token == "secret")
    at = layout.endpoints()
    at.kubeconfig("admin").parent.mkdir(parents=True)
    at.kubeconfig("admin").write_text(control_plane.kubeconfig(at.url, "secret", at.ca))
    layout.kubeconfig().write_text("apiVersion: v1\nusers:\n- name: rlfleet\n")

    assert cluster._has_api()  # noqa: SLF001 - what each start of the cluster waits for
