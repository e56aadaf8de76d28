"""RBAC: what the user's commands need, and what the operator's ServiceAccount needs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlfleet_kubectl.core.doctor import commands
from rlfleet_kubectl.core.doctor.finding import Finding, error, warning
from rlfleet_view.fleet import RawObject

_GROUP = "rlfleet.dev"


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource, as RBAC names them."""

    verb: str
    group: str
    resource: str
    """With its subresource: pods/log."""
    needs: str = ""
    """Which commands need it."""
    name: str = ""

    @property
    def text(self) -> str:
        """The right as `kubectl auth can-i` takes it."""
        return f"{self.verb} {self.resource}{'.' + self.group if self.group else ''}"


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether the API server allows it."""

    right: Right
    namespace: str
    is_allowed: bool


FIRST = Right("list", _GROUP, "rlinferencefleets", "get, doctor, report")
"""Without it hardly a command works."""
OF_USER = (
    FIRST,
    Right("get", _GROUP, "rlinferencefleets", "status, wait, history"),
    Right("watch", _GROUP, "rlinferencefleets", "status --watch, wait"),
    Right("patch", _GROUP, "rlinferencefleets", "set-version, pause, resume, abort, rollback"),
    Right("list", "", "pods", "logs, workers -o wide, doctor, report"),
    Right("get", "", "pods/log", "logs, report"),
    Right("get", "", "pods/proxy", "top"),
)
OF_USER_NEAR_OPERATOR = (
    Right("list", "", "pods", "logs, plan, doctor"),
    Right("get", "", "pods/log", "logs, report"),
    Right("create", "", "pods/exec", "plan"),
)
OF_OPERATOR = tuple(
    Right(verb, group, resource)
    for group, resource, verbs in (
        (_GROUP, "rlinferencefleets", ("get", "list", "watch")),
        (_GROUP, "rlinferencefleets/status", ("patch",)),
        ("", "pods", ("get", "list", "watch", "create", "patch", "delete")),
        ("", "pods/status", ("patch",)),
        ("", "services", ("get", "create", "patch")),
        ("", "secrets", ("get", "create")),
        ("", "events", ("create",)),
        ("policy", "poddisruptionbudgets", ("get", "create", "patch")),
    )
    for verb in verbs
)
"""What the chart grants where fleets are; a test compares it with the chart."""


def of_lease(name: str) -> tuple[Right, ...]:
    """Return what the operator needs in its own namespace."""
    group, resource = "coordination.k8s.io", "leases"
    return (
        Right("create", group, resource),
        *(Right(verb, group, resource, name=name) for verb in ("get", "update")),
    )


def reviews(rights: Sequence[Right], namespace: str, account: str | None = None) -> list[RawObject]:
    """Return the requests that ask the API server, about the user or a ServiceAccount."""
    whose = {} if account is None else {"user": account, "groups": _groups(account)}
    kind = "SelfSubjectAccessReview" if account is None else "SubjectAccessReview"
    return [
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": kind,
            "spec": {"resourceAttributes": _attributes(right, namespace), **whose},
        }
        for right in rights
    ]


def account_of(deployment: RawObject) -> str:
    """Return the user name of a Deployment's ServiceAccount."""
    spec = deployment["spec"]["template"]["spec"]
    name = spec.get("serviceAccountName") or "default"
    return f"system:serviceaccount:{deployment['metadata']['namespace']}:{name}"


def _groups(account: str) -> list[str]:
    space = account.split(":")[2]
    return ["system:serviceaccounts", f"system:serviceaccounts:{space}", "system:authenticated"]


def _attributes(right: Right, namespace: str) -> RawObject:
    resource, _, sub = right.resource.partition("/")
    found = {
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": sub,
        "name": right.name,
        "namespace": namespace,
    }
    return {key: value for key, value in found.items() if value}


def answers(rights: Sequence[Right], namespace: str, replies: Sequence[RawObject]) -> list[Answer]:
    """Return each right with what the API server answered, in the order of the requests."""
    return [
        Answer(right, namespace, bool((reply.get("status") or {}).get("allowed")))
        for right, reply in zip(rights, replies, strict=True)
    ]


def of_user(found: Sequence[Answer]) -> Iterator[Finding]:
    """Yield which commands the user's rights do not suffice for."""
    for namespace in dict.fromkeys(one.namespace for one in found):
        lacking = [one.right for one in found if one.namespace == namespace and not one.is_allowed]
        if lacking:
            make = error if FIRST in lacking else warning
            rights = "; ".join(f"{one.text} (for {one.needs})" for one in lacking)
            mend = f"ask for them; test: kubectl auth can-i {lacking[0].text} -n {namespace}"
            yield make("UserAccess", f"namespace {namespace}", f"you may not {rights}", mend)


def of_operator(found: Sequence[Answer], account: str, release: str) -> Iterator[Finding]:
    """Yield which rights the operator lacks, those of one namespace together."""
    for namespace in dict.fromkeys(one.namespace for one in found):
        lacking = [one.right for one in found if one.namespace == namespace and not one.is_allowed]
        if lacking:
            said = f"{account} may not {_by_resource(lacking)}; expected the rights of the chart"
            mend = commands.upgrade(release, account.split(":")[2])
            yield error("OperatorAccess", f"namespace {namespace}", said, mend)


def _by_resource(rights: Sequence[Right]) -> str:
    """Return rights as `get, list pods; patch pods/status`."""
    verbs: dict[str, list[str]] = {}
    for one in rights:
        verbs.setdefault(one.text.removeprefix(f"{one.verb} "), []).append(one.verb)
    return "; ".join(f"{', '.join(each)} {resource}" for resource, each in verbs.items())
