"""What several commands fetch: lists of objects, where the operator is, access.

What cannot be read is recorded and stops nothing: an installation that is broken, or a user with
few rights, is when these commands are needed. Secrets are only asked for names and keys.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

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
_NO_TYPE = "doesn't have a resource type"

OPERATOR_NAMESPACE = click.option(
    "--operator-namespace",
    help="Namespace of the operator. Default: of the one that drives the fleet's namespace.",
)


def operator_namespace(kubectl: Kubectl, asked: str | None) -> str:
    """Return the operator's namespace: as asked, or of the one that drives the namespace."""
    if asked:
        return asked
    here = f"--namespace={DEFAULT_OPERATOR_NAMESPACE}"
    for where in ("--all-namespaces", here):
        try:
            found = kubectl.json("get", "deployments", where, "-l", OPERATOR_PODS)["items"]
        except PluginError:
            continue
        if found:
            return installation.driving(found, current_namespace(kubectl))
    return DEFAULT_OPERATOR_NAMESPACE


def current_namespace(kubectl: Kubectl) -> str:
    """Return the namespace that the commands are about."""
    for flag in kubectl.flags:
        if flag.startswith("--namespace="):
            return flag.partition("=")[2]
    path = "-o=jsonpath={.contexts[0].context.namespace}"
    try:
        return kubectl.text("config", "view", "--minify", path).strip() or "default"
    except PluginError:
        # In a pod there is no kubeconfig.
        return "default"


def scene(kubectl: Kubectl, namespace: str, kinds: Sequence[str]) -> Scene:
    """Return what there is in a namespace, and what could not be read."""
    lists: dict[str, Sequence[RawObject]] = {}
    unread: dict[str, str] = {}

    def fetch(kind: str) -> None:
        try:
            lists[kind] = _listed(kubectl, namespace, kind, kinds)
        except PluginError as error:
            if _NO_TYPE not in str(error):
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
