"""What a ServiceAccount asked of the API server, by its audit log, and what RBAC grants it.

    granted = audit.granted(role["rules"])
    asked = audit.asked(log, user)
    audit.unused(granted, asked)  # must be empty
    audit.denied(asked)  # must be empty

Only requests for resources count: discovery needs no rule of ours. kube-apiserver renames a file
that is full, begins a new one, and deletes the oldest.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import dropwhile, product
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

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


class Position(NamedTuple):
    """A place in the log, which the renaming of its file does not change."""

    inode: int
    offset: int


@dataclass(frozen=True)
class AskedRequest:
    """One request, and whether RBAC allowed it."""

    namespace: str
    group: str
    resource: str
    verb: str
    name: str
    is_denied: bool
    at: datetime = field(compare=False)
    """When the API server got it."""

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
            at=datetime.fromisoformat(event["requestReceivedTimestamp"]),
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


def asked(log: Path, user: str, begin: Position | None = None) -> Iterator[AskedRequest]:
    """Yield a user's requests for resources since a position, or all that the files have."""
    word = json.dumps(user).encode()
    for line in _lines(log, begin):
        if word not in line:
            continue
        event = json.loads(line)
        if event["user"]["username"] == user and "resource" in event.get("objectRef", {}):
            yield AskedRequest.of(event)


def _lines(log: Path, begin: Position | None) -> Iterator[bytes]:
    with ExitStack() as opened:
        files = _opened(log, opened)
        if begin is not None and begin.inode in files:
            files[begin.inode].seek(begin.offset)
            files = dict(dropwhile(lambda one: one[0] != begin.inode, files.items()))
        for file in files.values():
            yield from (line for line in file if line.endswith(b"\n"))


def _opened(log: Path, stack: ExitStack) -> dict[int, BinaryIO]:
    """Return the files of the log by inode, the oldest first."""
    found: list[BinaryIO] = []
    with suppress(FileNotFoundError):
        # Before the others are listed: it may be renamed at any time, and is then listed too.
        found.append(stack.enter_context(log.open("rb")))
    for path in sorted(log.parent.glob(f"{log.stem}-*{log.suffix}"), reverse=True):
        with suppress(FileNotFoundError):
            found.append(stack.enter_context(path.open("rb")))
    return {os.fstat(file.fileno()).st_ino: file for file in reversed(found)}


def position(log: Path) -> Position | None:
    """Return where the log ends now; None if it has not begun."""
    if not log.exists():
        return None
    about = log.stat()
    return Position(about.st_ino, about.st_size)


def unused(grants: Iterable[Grant], requests: Iterable[AskedRequest]) -> list[Grant]:
    """Return the grants that no request needed."""
    held = set(requests)
    return sorted(one for one in grants if not any(request.uses(one) for request in held))


def denied(requests: Iterable[AskedRequest]) -> set[AskedRequest]:
    """Return the requests that no rule allowed."""
    return {one for one in requests if one.is_denied}
