"""What a ServiceAccount asked of the API server, by its audit log, and what RBAC grants it.

    granted = audit.granted(role["rules"])
    asked = audit.asked(log, user)
    audit.unused(granted, asked)  # must be empty
    audit.denied(asked)  # must be empty

Only requests for resources count: discovery needs no rule of ours. kube-apiserver begins a new
file when one is full, and deletes the oldest.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Self

POLICY = Path(__file__).with_name("audit-policy.yaml")
MEGABYTES, FILES = 64, 2
"""Of each file, and how many older ones are kept."""


@dataclass(frozen=True, order=True)
class Grant:
    """One verb on one resource; with a name on one object alone."""

    group: str
    resource: str
    verb: str
    name: str = ""


@dataclass(frozen=True)
class AskedRequest:
    """One request, and whether RBAC allowed it."""

    namespace: str
    group: str
    resource: str
    verb: str
    name: str
    is_denied: bool

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Self:
        """Return it from an event of the audit log."""
        about = event["objectRef"]
        resource, part = about["resource"], about.get("subresource")
        return cls(
            namespace=about.get("namespace", ""),
            group=about.get("apiGroup", ""),
            resource=f"{resource}/{part}" if part else resource,
            verb=event["verb"],
            name=about.get("name", ""),
            # A quota and a namespace that ends forbid too, but not for want of a rule.
            is_denied=event["annotations"].get("authorization.k8s.io/decision") == "forbid",
        )

    def uses(self, grant: Grant) -> bool:
        """Return whether this request needs the grant."""
        mine = (self.group, self.resource, self.verb)
        is_named = not grant.name or grant.name == self.name
        return mine == (grant.group, grant.resource, grant.verb) and is_named


def flags(folder: Path) -> list[str]:
    """Return kube-apiserver's flags."""
    return [
        f"--audit-policy-file={POLICY}",
        f"--audit-log-path={log_in(folder)}",
        f"--audit-log-maxsize={MEGABYTES}",
        f"--audit-log-maxbackup={FILES}",
    ]


def log_in(folder: Path) -> Path:
    """Return the newest file of the log of a control plane with its files in this folder."""
    return folder / "audit.log"


def granted(rules: Iterable[Mapping[str, Any]]) -> set[Grant]:
    """Return what the rules of roles grant."""
    found: set[Grant] = set()
    for rule in rules:
        names = rule.get("resourceNames") or [""]
        sets = product(rule["apiGroups"], rule["resources"], rule["verbs"], names)
        found |= {Grant(*one) for one in sets}
    return found


def asked(log: Path, user: str, begin: int = 0) -> Iterator[AskedRequest]:
    """Yield a user's requests for resources since a position in the newest file."""
    word = json.dumps(user).encode()
    if not log.exists():
        return
    with log.open("rb") as lines:
        # A new file has begun since, if it is shorter.
        lines.seek(begin if begin <= log.stat().st_size else 0)
        for line in lines:
            if word not in line:
                continue
            event = json.loads(line)
            if event["user"]["username"] == user and "resource" in event.get("objectRef", {}):
                yield AskedRequest.of(event)


def position(log: Path) -> int:
    """Return where the newest file ends now."""
    return log.stat().st_size if log.exists() else 0


def unused(grants: Iterable[Grant], requests: Iterable[AskedRequest]) -> list[Grant]:
    """Return the grants that no request needed."""
    held = set(requests)
    return sorted(one for one in grants if not any(request.uses(one) for request in held))


def denied(requests: Iterable[AskedRequest]) -> set[AskedRequest]:
    """Return the requests that no rule allowed."""
    return {one for one in requests if one.is_denied}
