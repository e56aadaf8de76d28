"""What several commands fetch: lists of objects, where the operator is, access.

What cannot be read is recorded and stops nothing: an installation that is broken, or a user with
few rights, is when these commands are needed. Secrets are only asked for names and keys.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from rlfleet_kubectl.core.doctor import access, installation
from rlfleet_kubectl.core.doctor.access import Answer, Right
from rlfleet_kubectl.core.doctor.scene import Scene, SecretKeys
from rlfleet_kubectl.core.names import FLEETS, OPERATOR_PODS
from rlfleet_kubectl.errors import PluginError
from rlfleet_kubectl.kubectl import Kubectl, objects
from rlfleet_view.fleet import RawObject

DEFAULT_OPERATOR_NAMESPACE = "rlfleet-system"
SPACE_KINDS = (
    FLEETS,
    "pods",
    "services",
    "persistentvolumeclaims",
    "networkpolicies",
    "resourcequotas",
    "poddisruptionbudgets",
    "events",
    "namespaces",
)
OPERATOR_KINDS = ("deployments", "pods", "leases", "networkpolicies", "events", "namespaces")
_OF_OPERATOR = frozenset({"deployments", "pods"})
"""In its namespace there may be others."""
_AT_ONCE = 8
_KEYS = (
    '{{define "s"}}{{.metadata.name}}{{range $key, $value := .data}} {{$key}}={{len $value}}{{end}}'
    '{{"\\n"}}{{end}}{{if .items}}{{range .items}}{{template "s" .}}{{end}}{{else}}'
    '{{template "s" .}}{{end}}'
)
"""Prints names, keys and lengths: no value of a Secret leaves kubectl."""
NO_TYPE = "doesn't have a resource type"
"""kubectl's words where the definition of a kind is missing."""
_NO_NAMESPACE = "(NotFound)"
_OF_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_OF_SERVICE = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
"""With both and a token, kubectl takes itself to be in a pod."""

OPERATOR_NAMESPACE = click.option(
    "--operator-namespace",
    help="Namespace of the operator. Default: of the one that drives the fleet's namespace.",
)


def operator_namespace(kubectl: Kubectl, asked: str | None) -> str:
    """Return the operator's namespace: as asked, or of the one that drives the namespace."""
    return asked or driving_namespace(kubectl, operators(kubectl))


def operators(kubectl: Kubectl) -> list[RawObject]:
    """Return the Deployments of operators in all namespaces, as far as they can be read."""
    here = f"--namespace={DEFAULT_OPERATOR_NAMESPACE}"
    for where in ("--all-namespaces", here):
        try:
            found = kubectl.json("get", "deployments", where, "-l", OPERATOR_PODS)["items"]
        except PluginError:
            continue
        if found:
            return list(found)
    return []


def driving_namespace(kubectl: Kubectl, found: Sequence[RawObject]) -> str:
    """Return where the operator of these is that drives the namespace of the commands."""
    if not found:
        return DEFAULT_OPERATOR_NAMESPACE
    return installation.driving(found, current_namespace(kubectl))


def current_namespace(kubectl: Kubectl) -> str:
    """Return the namespace that the commands are about."""
    for flag in kubectl.flags:
        if flag.startswith("--namespace="):
            return flag.partition("=")[2]
    path = "-o=jsonpath={.contexts[0].context.namespace}"
    try:
        named = kubectl.text("config", "view", "--minify", path).strip()
    except PluginError:
        # In a pod there is no kubeconfig.
        named = ""
    return named or own_namespace(os.environ)  # noqa: TID251 - the one reader


def own_namespace(environment: Mapping[str, str], folder: Path = _OF_POD) -> str:
    """Return what kubectl takes where no kubeconfig names a namespace: in a pod, the pod's."""
    is_in_pod = all(map(environment.get, _OF_SERVICE)) and (folder / "token").is_file()
    if not is_in_pod:
        return "default"
    if found := environment.get("POD_NAMESPACE"):
        return found
    try:
        return (folder / "namespace").read_text().strip() or "default"
    except OSError:
        return "default"


def scene(kubectl: Kubectl, namespace: str, kinds: Sequence[str]) -> Scene:
    """Return what there is in a namespace, and what could not be read."""
    lists: dict[str, Sequence[RawObject]] = {}
    unread: dict[str, str] = {}

    def fetch(kind: str) -> None:
        try:
            lists[kind] = _listed(kubectl, namespace, kind, kinds)
        except PluginError as error:
            # What is not there is no matter of rights.
            is_absent = kind == "namespaces" and _NO_NAMESPACE in str(error)
            if NO_TYPE not in str(error) and not is_absent:
                unread[kind] = str(error)

    at_once(fetch, kinds)
    return Scene(namespace, lists, unread)


def _listed(
    kubectl: Kubectl, namespace: str, kind: str, kinds: Sequence[str]
) -> Sequence[RawObject]:
    if kind == "namespaces":
        return [kubectl.json("get", "namespace", namespace)]
    ours = kinds is OPERATOR_KINDS and kind in _OF_OPERATOR
    words = ["-l", OPERATOR_PODS] if ours else []
    # They say when the spec was changed.
    words += ["--show-managed-fields"] if kind == FLEETS else []
    found: list[RawObject] = kubectl.json("get", kind, f"--namespace={namespace}", *words)["items"]
    return found


def at_once(work: Callable[[str], None], items: Iterable[str]) -> None:
    """Do something for each item, some at the same time: each waits for the API server."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(work, items))


def definition(kubectl: Kubectl) -> tuple[RawObject | None, bool]:
    """Return the CustomResourceDefinition, and whether it is known that there is (not) one."""
    try:
        return kubectl.json("get", "crd", FLEETS), True
    except PluginError as error:
        return None, "NotFound" in str(error)


def secret_keys(kubectl: Kubectl, namespace: str, names: Sequence[str]) -> SecretKeys | None:
    """Return which of these Secrets exist, with the lengths of their values by key."""
    if not names:
        return {}
    words = ("secrets", *names, f"--namespace={namespace}", "--ignore-not-found")
    try:
        text = kubectl.text("get", *words, f"-o=go-template={_KEYS}")
    except PluginError:
        return None
    rows = (line.split(" ") for line in text.splitlines() if line.strip())
    return {
        name: {key: int(length) for key, _, length in (one.partition("=") for one in keys)}
        for name, *keys in rows
    }


def allowed(
    kubectl: Kubectl, rights: Sequence[Right], namespace: str, account: str | None = None
) -> list[Answer]:
    """Return what the user, or a ServiceAccount, may do; empty if the API server does not say."""
    asked = access.reviews(rights, namespace, account)
    body = {"apiVersion": "v1", "kind": "List", "items": asked}
    words = ("create", "-f", "-", "-o", "json", "--validate=false")
    try:
        text = kubectl.text(*words, stdin=json.dumps(body))
    except PluginError:
        return []
    replies = [one for each in objects(text.splitlines(keepends=True)) for one in _items(each)]
    return access.answers(rights, namespace, replies) if len(replies) == len(rights) else []


def _items(found: RawObject) -> list[RawObject]:
    return list(found["items"]) if found.get("kind") == "List" else [found]
