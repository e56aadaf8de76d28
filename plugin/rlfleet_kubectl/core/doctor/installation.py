"""The definition, the operator's Deployment and pods, and its leader."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from rlfleet_kubectl.core.doctor import access, commands, pods
from rlfleet_kubectl.core.doctor.access import Right
from rlfleet_kubectl.core.doctor.finding import Finding, error, unknown, warning
from rlfleet_kubectl.core.doctor.scene import (
    Scene,
    environment,
    kubectl_in,
    labels_of,
    named,
    seconds_since,
)
from rlfleet_kubectl.core.names import FLEETS, OPERATOR_PODS
from rlfleet_view.fleet import RawObject, age

_ABOUT = f"crd {FLEETS}"
_INSTALL = (
    "helm upgrade --install rlfleet charts/rlfleet -n {} --create-namespace"
    " --set image.repository=REGISTRY/operator --set worker.image=REGISTRY/worker:TAG"
)
_SLACK_S = 30.0
"""The user's clock may differ so much from the leader's."""
_SHOWN = 3
_ADMIN_PORT = 8090
"""The chart's default."""


def of_definition(
    found: RawObject | None, known: frozenset[str], operator: Scene
) -> Iterator[Finding]:
    """Yield what is wrong with the CustomResourceDefinition; None if there is none."""
    if found is None:
        said = "got no such definition, expected one"
        yield error("DefinitionMissing", _ABOUT, said, _INSTALL.format(operator.namespace))
        return
    conditions = (found.get("status") or {}).get("conditions") or ()
    for one in conditions:
        if one["type"] in {"Established", "NamesAccepted"} and one["status"] != "True":
            said = f"{one['type']} is {one['status']}: {one.get('message', '')}"
            yield error("DefinitionNotServed", _ABOUT, said, f"kubectl describe crd {FLEETS}")
    fields = fields_of(found)
    lacking, more = sorted(known - fields), sorted(fields - known)
    if lacking:
        said = f"lacks fields that this plugin knows ({len(lacking)}): {_some(lacking)}"
        release = commands.release_in(operator.of("deployments"))
        mend = commands.upgrade(release, operator.namespace)
        yield warning("DefinitionOlder", _ABOUT, said, mend)
    if more:
        said = f"has fields that this plugin does not know ({len(more)}): {_some(more)}"
        yield warning("DefinitionNewer", _ABOUT, said, "install the plugin of the same release")


def fields_of(definition: RawObject) -> frozenset[str]:
    """Return the paths of all fields below spec and status of the served version."""
    versions = [one for one in definition["spec"]["versions"] if one.get("served", True)]
    schema = versions[-1]["schema"]["openAPIV3Schema"]["properties"]
    return frozenset(
        path for top in ("spec", "status") for path in _below(top, schema.get(top) or {})
    )


def _below(path: str, schema: RawObject) -> Iterator[str]:
    for name, one in (schema.get("properties") or {}).items():
        yield f"{path}.{name}"
        yield from _below(f"{path}.{name}", one)
    if "items" in schema:
        yield from _below(f"{path}[]", schema["items"])


def _some(fields: Sequence[str]) -> str:
    return ", ".join(fields[:_SHOWN]) + (", ..." if len(fields) > _SHOWN else "")


def of_operator(scene: Scene, release: str, now: datetime) -> Iterator[Finding]:
    """Yield what is wrong with the operator; ``release`` is the plugin's."""
    if not scene.knows("deployments"):
        return
    found = scene.of("deployments")
    if not found:
        said = f"got no Deployment with {OPERATOR_PODS}, expected the operator"
        mend = f"name its namespace by --operator-namespace, or {_INSTALL.format(scene.namespace)}"
        yield error("OperatorMissing", f"namespace {scene.namespace}", said, mend)
    for deployment in found:
        unled = [*_of_lease(deployment, scene, now)]
        yield from _of_deployment(deployment, release, is_led=not unled)
        yield from unled
    for pod in scene.of("pods"):
        yield from pods.of_pod(pod, scene, now)


def _of_deployment(raw: RawObject, release: str, *, is_led: bool) -> Iterator[Finding]:
    about, command = named("deployment", raw), kubectl_in(raw["metadata"]["namespace"])
    name = raw["metadata"]["name"]
    wanted = int((raw.get("spec") or {}).get("replicas", 1))
    ready = int((raw.get("status") or {}).get("readyReplicas") or 0)
    if wanted == 0:
        said = "got 0 replicas, expected 1 or more: no fleet is reconciled"
        yield error(
            "OperatorScaledToZero", about, said, f"{command} scale deploy {name} --replicas=2"
        )
    elif ready == 0:
        # As on a node whose kubelet is lost: the process still leads.
        so = "fleet API and metrics are not reached" if is_led else "no fleet is reconciled"
        said = f"got 0 of {wanted} replicas ready: {so}"
        mend = f"see its pods, then {command} logs deploy/{name}"
        yield error("OperatorNotReady", about, said, mend)
    elif ready < wanted:
        said = f"got {ready} of {wanted} replicas ready: no standby takes over"
        yield warning("OperatorNotReady", about, said, f"{command} logs deploy/{name}")
    yield from _rejected(raw, about)
    version = labels_of(raw).get("app.kubernetes.io/version")
    if version and version != release:
        said = f"got release {version} of the operator, expected {release} as the plugin's"
        yield warning("OperatorRelease", about, said, "install plugin and chart of one release")


def _rejected(raw: RawObject, about: str) -> Iterator[Finding]:
    for one in (raw.get("status") or {}).get("conditions") or ():
        if (one["type"], one["status"]) == ("ReplicaFailure", "True"):
            mend = "mend what the message names: a quota, an admission policy, the ServiceAccount"
            yield error("OperatorPodRejected", about, str(one.get("message", "")), mend)


def settings_of(deployment: RawObject) -> dict[str, str]:
    """Return the variables of the operator's container."""
    spec = deployment["spec"]["template"]["spec"]
    found = (environment(one) for one in spec["containers"] if one["name"] == "operator")
    return next(found, {})


def _of_lease(deployment: RawObject, scene: Scene, now: datetime) -> Iterator[Finding]:
    name = settings_of(deployment).get("RLFLEET_LEASE_NAME")
    if not name or not scene.knows("leases"):
        return
    about = f"lease {scene.namespace}/{name}"
    command = kubectl_in(scene.namespace)
    mend = f"{command} logs deploy/{deployment['metadata']['name']} --tail=50"
    lease = next((one for one in scene.of("leases") if one["metadata"]["name"] == name), None)
    if lease is None:
        said = "got no Lease, expected one with a holder: no operator leads"
        yield error("NoLeader", about, said, mend)
        return
    spec = lease.get("spec") or {}
    since = seconds_since(spec.get("renewTime"), now)
    limit = float(spec.get("leaseDurationSeconds") or 10) + _SLACK_S
    if not spec.get("holderIdentity"):
        yield error("NoLeader", about, "got no holder, expected one: no operator leads", mend)
    elif since is None or since > limit:
        ago = "never" if since is None else f"{age(since)} ago"
        said = f"holder {spec['holderIdentity']} renewed it {ago}, expected within {limit:.0f} s"
        yield error("NoLeader", about, said, mend)


def _namespaces_of(deployment: RawObject) -> list[str]:
    """Return the namespaces that an operator drives; empty for all."""
    only = settings_of(deployment).get("RLFLEET_NAMESPACES", "")
    return [one.strip() for one in only.split(",") if one.strip()]


def driving(deployments: Sequence[RawObject], namespace: str) -> str:
    """Return where the operator is that drives a namespace; of any, if none does."""

    def rank(deployment: RawObject) -> int:
        names = _namespaces_of(deployment)
        return 2 if namespace in names else 0 if names else 1

    return str(max(deployments, key=rank)["metadata"]["namespace"])


def drives(deployment: RawObject, namespace: str) -> bool:
    """Return whether an operator drives a namespace."""
    names = _namespaces_of(deployment)
    return not names or namespace in names


def needed_by(
    deployment: RawObject, namespaces: Sequence[str]
) -> Iterator[tuple[str, Sequence[Right]]]:
    """Yield the rights that an operator needs, each with its namespace: of these, where it drives.

    Its Lease is in its own namespace.
    """
    lease = settings_of(deployment).get("RLFLEET_LEASE_NAME", "")
    yield deployment["metadata"]["namespace"], access.of_lease(lease)
    for namespace in namespaces:
        if drives(deployment, namespace):
            yield namespace, access.OF_OPERATOR


def admin_port(scene: Scene, namespace: str) -> int | None:
    """Return the sidecars' port of the operator that drives a namespace; None if none here does."""
    every = scene.of("deployments")
    mine = [settings_of(one) for one in every if drives(one, namespace)]
    if every and not mine:
        return None
    ports = (one.get("RLFLEET_ADMIN_PORT", "") for one in mine)
    return next((int(one) for one in ports if one.isdecimal()), _ADMIN_PORT)


def of_namespace(
    namespace: str, scene: Scene, elsewhere: Sequence[RawObject] = ()
) -> Iterator[Finding]:
    """Yield why none or several operators drive its fleets; ``elsewhere`` has Deployments too."""
    near = scene.of("deployments")
    every = {named("deployment", one): one for one in (*near, *elsewhere)}
    mine = sorted(about for about, one in every.items() if drives(one, namespace))
    if len(mine) > 1:
        said = f"{' and '.join(mine)} all drive its fleets, and undo each other's work"
        mend = "uninstall all but one, or give each its own namespaces in the chart's values"
        yield error("SeveralOperators", f"namespace {namespace}", said, mend)
    if mine:
        return
    for deployment in near:
        said = f"the operator drives {', '.join(_namespaces_of(deployment))}, not this namespace"
        names = ",".join((*_namespaces_of(deployment), namespace))
        home, release = deployment["metadata"]["namespace"], commands.release_of(deployment)
        mend = commands.upgrade(release, home, f"namespaces={{{names}}}")
        yield error("NamespaceNotDriven", f"namespace {namespace}", said, mend)


def unread(scene: Scene) -> Iterator[Finding]:
    """Yield what could not be read, so that its checks are missing."""
    if not scene.unread:
        return
    first, why = next(iter(sorted(scene.unread.items())))
    said = f"cannot read {', '.join(sorted(scene.unread))}: {why.splitlines()[0]}"
    mend = f"ask a user with this right: kubectl auth can-i list {first} -n {scene.namespace}"
    yield unknown("NotReadable", f"namespace {scene.namespace}", said, mend)
