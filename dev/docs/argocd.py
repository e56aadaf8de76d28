"""The ConfigMap that teaches Argo CD health and actions of fleets, from deploy/argocd/lua.

Argo CD runs each script alone and cannot import: what several need stands at the top of each.
"""

import json
from pathlib import Path
from textwrap import indent

ROOT = Path(__file__).resolve().parents[2]
LUA = ROOT / "deploy" / "argocd" / "lua"
ACTIONS = ("pause", "resume", "retry", "abort", "promote", "rollback", "follow")
KEY = "rlfleet.dev_RLInferenceFleet"
_HEAD = """\
# Generated from deploy/argocd/lua by `make generate`; do not edit.
#   kubectl apply --server-side -f argocd-cm.yaml
# adds two keys to Argo CD's own ConfigMap and leaves the others. No restart is needed.
apiVersion: v1
kind: ConfigMap
metadata:
  name: argocd-cm
  namespace: argocd
  labels:
    app.kubernetes.io/name: argocd-cm
    app.kubernetes.io/part-of: argocd
data:
"""


def health() -> str:
    """Return the script that Argo CD runs for a fleet's health."""
    return _joined("fleet", "health")


def discovery() -> str:
    """Return the script that says which actions fit a fleet's state."""
    return _joined("fleet", "changes", "discovery")


def action(name: str) -> str:
    """Return the script of an action, which returns the object as it should be."""
    return _joined("fleet", "changes") + f"\nreturn changed({json.dumps(name)})\n"


def _joined(*names: str) -> str:
    return "\n".join((LUA / f"{name}.lua").read_text() for name in names)


def as_yaml() -> str:
    """Return the ConfigMap."""
    actions = "discovery.lua: |\n" + indent(discovery(), "  ") + "definitions:\n"
    for name in ACTIONS:
        actions += f"- name: {name}\n  action.lua: |\n" + indent(action(name), "    ")
    return (
        _HEAD
        + f"  resource.customizations.health.{KEY}: |\n"
        + indent(health(), "    ")
        + f"  resource.customizations.actions.{KEY}: |\n"
        + indent(actions, "    ")
    )
