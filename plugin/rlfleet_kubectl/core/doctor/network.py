"""NetworkPolicies that keep the operator from the sidecars, and names that another object has.

Only policies of networking.k8s.io are judged; those of a network plugin of its own are not read.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rlfleet_kubectl.core.doctor import commands, installation
from rlfleet_kubectl.core.doctor.finding import EACH, Finding, error, warning
from rlfleet_kubectl.core.doctor.scene import FleetScene, Scene, kubectl_in, labels_of, named
from rlfleet_kubectl.core.names import FLEET_LABEL
from rlfleet_view.fleet import RawObject


@dataclass(frozen=True, slots=True)
class Port:
    """A port of the worker's pod."""

    number: int
    name: str


_HTTP = Port(8000, "http")
_SELECTOR = ("app.kubernetes.io/name", "app.kubernetes.io/instance")
"""The chart's labels by which its Deployment selects its pods."""
_NAME_LABEL = "kubernetes.io/metadata.name"
"""Kubernetes labels each namespace with its name."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One end of a connection; an operator or a worker."""

    labels: Mapping[str, str]
    namespace: Mapping[str, str]
    addresses: tuple[str, ...]
    in_namespace: str


def selects(selector: RawObject | None, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector selects these labels; an empty one selects all."""
    selector = selector or {}
    wanted = selector.get("matchLabels") or {}
    rules = selector.get("matchExpressions") or ()
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _holds(rule, labels) for rule in rules
    )


def _holds(rule: RawObject, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(rule["key"]), rule.get("values") or ()
    match rule["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None


def _admits_port(rule: RawObject, port: Port) -> bool:
    ports = rule.get("ports")
    return not ports or any(_is_port(one, port) for one in ports)


def _is_port(one: RawObject, port: Port) -> bool:
    if one.get("protocol", "TCP") != "TCP":
        return False
    named_port = one.get("port")
    if named_port is None or named_port in {port.number, port.name}:
        return True
    last = one.get("endPort")
    if not isinstance(named_port, int) or not isinstance(last, int):
        return False
    return named_port <= port.number <= last


def _admits_peer(rule: RawObject, side: str, peer: Peer, policy_namespace: str) -> bool:
    ends = rule.get(side)
    return not ends or any(_is_peer(one, peer, policy_namespace) for one in ends)


def _is_peer(one: RawObject, peer: Peer, policy_namespace: str) -> bool:
    if "ipBlock" in one:
        return _is_in(one["ipBlock"], peer.addresses)
    space = one.get("namespaceSelector")
    if space is None:
        is_in_space = peer.in_namespace == policy_namespace
    else:
        is_in_space = selects(space, peer.namespace)
    return is_in_space and selects(one.get("podSelector"), peer.labels)


def _is_in(block: RawObject, addresses: Iterable[str]) -> bool:
    inside = ipaddress.ip_network(block["cidr"], strict=False)
    holes = [ipaddress.ip_network(one, strict=False) for one in block.get("except") or ()]
    return any(
        address in inside and not any(address in hole for hole in holes)
        for address in map(ipaddress.ip_address, addresses)
    )


def _policies(scene: Scene, kind: str, labels: Mapping[str, str]) -> list[RawObject]:
    """Return the policies of a namespace that select a pod, for Ingress or Egress."""
    return [
        one
        for one in scene.of("networkpolicies")
        if kind in _types(one["spec"]) and selects(one["spec"].get("podSelector"), labels)
    ]


def _types(spec: RawObject) -> list[str]:
    # As the API server fills it in: Egress only if the policy has such rules.
    return list(
        spec.get("policyTypes") or (["Ingress", "Egress"] if "egress" in spec else ["Ingress"])
    )


def of_fleet(scene: FleetScene) -> Iterator[Finding]:
    """Yield which policies block all traffic to the workers."""
    worker = next(scene.pods(), None)
    if worker is None:
        return
    policies = _policies(scene.space, "Ingress", labels_of(worker))
    operators = [_peer(pod, scene.operator) for pod in scene.operator.of("pods")]
    if policies and operators:
        yield from _http_ingress(scene, policies, operators)
    number = installation.admin_port(scene.operator, scene.fleet.namespace)
    if number is None:
        return
    admin = Port(number, "admin")
    if policies and operators:
        yield from _admin_ingress(scene, admin, policies, operators)
    for pod in scene.operator.of("pods")[:1]:
        yield from _egress(scene, admin, pod, worker)


def _peer(pod: RawObject, scene: Scene) -> Peer:
    addresses = tuple(one["ip"] for one in (pod.get("status") or {}).get("podIPs") or ())
    return Peer(labels_of(pod), scene.labels(), addresses, scene.namespace)


def _rules(policies: Iterable[RawObject], kind: str) -> Iterator[tuple[RawObject, str]]:
    for policy in policies:
        for rule in policy["spec"].get(kind) or ():
            yield rule or {}, policy["metadata"]["namespace"]


def _admin_ingress(
    scene: FleetScene, admin: Port, policies: list[RawObject], operators: list[Peer]
) -> Iterator[Finding]:
    is_open = any(
        _admits_port(rule, admin) and any(_admits_peer(rule, "from", p, space) for p in operators)
        for rule, space in _rules(policies, "ingress")
    )
    if not is_open:
        said = f"no rule lets the operator's pods reach port {admin.number}: {_list(policies)}"
        mend = _admitting("operator", admin, scene.operator.namespace, scene)
        yield error("PolicyBlocksOperator", scene.about, said, mend)


def _admitting(whom: str, port: Port, namespace: str, scene: FleetScene) -> str:
    """Return the command that admits a namespace to the workers: policies add up."""
    fleet, peer = scene.fleet, {"namespaceSelector": {"matchLabels": {_NAME_LABEL: namespace}}}
    spec = {
        "podSelector": {"matchLabels": {FLEET_LABEL: fleet.name}},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [peer], "ports": [{"port": port.number}]}],
    }
    return _policy(f"{fleet.name}-from-{whom}", spec, fleet.namespace)


def _policy(name: str, spec: RawObject, namespace: str) -> str:
    kind = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    return commands.applying({**kind, "metadata": {"name": name}, "spec": spec}, namespace)


def _http_ingress(
    scene: FleetScene, policies: list[RawObject], operators: list[Peer]
) -> Iterator[Finding]:
    is_open = any(
        _admits_port(rule, _HTTP) and _admits_others(rule, operators, space)
        for rule, space in _rules(policies, "ingress")
    )
    if not is_open:
        said = f"no rule allows port {_HTTP.number}: {_list(policies)}"
        mend = _admitting("samplers", _HTTP, "NAMESPACE", scene)
        yield error("PolicyBlocksSamplers", scene.about, said, mend)


def _admits_others(rule: RawObject, operators: list[Peer], policy_namespace: str) -> bool:
    """Return whether a rule admits more than the operator's own pods, by their labels."""
    peers = rule.get("from")
    return not peers or any(
        not one.get("podSelector") or not any(_is_peer(one, p, policy_namespace) for p in operators)
        for one in peers
    )


def _egress(
    scene: FleetScene, admin: Port, operator: RawObject, worker: RawObject
) -> Iterator[Finding]:
    policies = _policies(scene.operator, "Egress", labels_of(operator))
    peer = _peer(worker, scene.space)
    is_open = any(
        _admits_port(rule, admin) and _admits_peer(rule, "to", peer, space)
        for rule, space in _rules(policies, "egress")
    )
    if policies and not is_open:
        number, home = admin.number, scene.operator.namespace
        said = f"no rule lets the operator send to port {number} of the workers: {_list(policies)}"
        mend = _policy("rlfleet-to-workers", _sending(number, operator), home)
        yield error("PolicyBlocksOperator", f"namespace {home}", said, mend)


def _sending(number: int, operator: RawObject) -> RawObject:
    """Return a policy that lets the operator's pods send to all workers."""
    known = labels_of(operator)
    mine = {name: known[name] for name in _SELECTOR if name in known}
    workers = {"matchExpressions": [{"key": FLEET_LABEL, "operator": "Exists"}]}
    peer = {"namespaceSelector": {}, "podSelector": workers}
    return {
        "podSelector": {"matchLabels": mine},
        "policyTypes": ["Egress"],
        "egress": [{"to": [peer], "ports": [{"port": number}]}],
    }


def _list(policies: Iterable[RawObject]) -> str:
    return ", ".join(named("networkpolicy", one) for one in policies)


_OWNED = (("services", "service", ("", "-workers")), ("poddisruptionbudgets", "pdb", ("",)))


def of_names(scene: FleetScene) -> Iterator[Finding]:
    """Yield objects that have a name which the fleet needs, and do not belong to it."""
    fleet = scene.fleet
    for plural, kind, suffixes in _OWNED:
        names = {f"{fleet.name}{suffix}" for suffix in suffixes}
        for one in scene.space.of(plural):
            if one["metadata"]["name"] in names and not _is_owned(one, fleet.raw):
                yield _taken(one, kind, scene)
    for pod in scene.space.of("pods"):
        if _is_named_as_worker(pod, scene) and not _is_owned(pod, fleet.raw):
            yield _taken(pod, "pod", scene)


def _is_named_as_worker(pod: RawObject, scene: FleetScene) -> bool:
    stem, _, number = pod["metadata"]["name"].rpartition("-")
    is_wanted = number.isdigit() and int(number) < scene.fleet.replicas
    return bool(stem == scene.fleet.name and is_wanted)


def _is_owned(raw: RawObject, fleet: RawObject) -> bool:
    owners = raw["metadata"].get("ownerReferences") or ()
    return any(one.get("uid") == fleet["metadata"].get("uid") for one in owners)


def _taken(raw: RawObject, kind: str, scene: FleetScene) -> Finding:
    owners = raw["metadata"].get("ownerReferences") or ()
    whose = next((f"{one['kind']} {one['name']}" for one in owners), "nobody")
    said = f"exists and belongs to {whose}, expected {scene.about}, which needs this name"
    command = kubectl_in(scene.fleet.namespace)
    mend = f"{command} delete {EACH}, or give the fleet another name"
    make = warning if raw["metadata"].get("deletionTimestamp") else error
    return make("NameTaken", named(kind, raw), said, mend, f"{kind}/{raw['metadata']['name']}")
