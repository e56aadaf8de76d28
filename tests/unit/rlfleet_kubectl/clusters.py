"""A cluster with one healthy fleet, as kubectl returned it from the development cluster."""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from rlfleet_kubectl.core.doctor import access, installation
from rlfleet_kubectl.core.doctor.access import Answer
from rlfleet_kubectl.core.doctor.diagnosis import Examined, Knowledge, diagnosed
from rlfleet_kubectl.core.doctor.finding import Finding
from rlfleet_kubectl.core.doctor.installation import fields_of
from rlfleet_kubectl.core.doctor.scene import Scene
from rlfleet_kubectl.core.names import FLEETS
from rlfleet_view.web import known_reasons

ROOT = Path(__file__).resolve().parents[3]
RECORDED = json.loads((Path(__file__).parent / "recorded" / "cluster.json").read_text())
DEFINITION = yaml.safe_load((ROOT / "crds" / f"{FLEETS}.yaml").read_text())
REASONS = known_reasons()
KNOWN = Knowledge("0.1.0", fields_of(DEFINITION), REASONS)
NAMESPACE, OPERATOR_NAMESPACE = "plugin", "plugin-system"


@dataclass
class Cluster:
    """What kubectl returns; a test changes it before it asks for a diagnosis."""

    definition: Any = field(default_factory=lambda: copy.deepcopy(DEFINITION))
    is_definition_known: bool = True
    operator: dict[str, list[Any]] = field(
        default_factory=lambda: copy.deepcopy(RECORDED["operator"])
    )
    space: dict[str, list[Any]] = field(default_factory=lambda: copy.deepcopy(RECORDED["space"]))
    secrets: dict[str, dict[str, int]] | None = field(
        default_factory=lambda: {"qwen-admin": {"token": 60}}
    )
    unread: dict[str, str] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    """Rights that the user lacks, as `kubectl auth can-i` takes them."""
    operator_denied: set[str] = field(default_factory=set)
    elsewhere: list[Any] = field(default_factory=list)
    """Deployments of operators in other namespaces."""
    now: datetime = field(default_factory=lambda: datetime.fromisoformat(RECORDED["now"]))

    @property
    def fleet(self) -> Any:
        """The fleet."""
        return self.space[FLEETS][0]

    @property
    def pod(self) -> Any:
        """Its worker's pod."""
        return self.space["pods"][0]

    @property
    def deployment(self) -> Any:
        """The operator's."""
        return self.operator["deployments"][0]

    @property
    def claim(self) -> Any:
        """That of the checkpoints."""
        return self.space["persistentvolumeclaims"][0]

    def container(self, name: str) -> Any:
        """Return the status of a container of the worker."""
        status = self.pod["status"]
        every = [*status["initContainerStatuses"], *status["containerStatuses"]]
        return next(one for one in every if one["name"] == name)

    def diagnosed(self, only: str | None = None) -> list[Finding]:
        """Return what `doctor` finds."""
        return diagnosed(self.evidence(only), KNOWN)

    def evidence(self, only: str | None = None) -> Examined:
        """Return it as `doctor` has it."""
        of_user = [
            Answer(right, NAMESPACE, right.text not in self.denied) for right in access.OF_USER
        ]
        of_operators: dict[str, list[Answer]] = {}
        for deployment in self.operator["deployments"]:
            answers = of_operators.setdefault(access.account_of(deployment), [])
            for space, rights in installation.needed_by(deployment, [NAMESPACE]):
                answers += [Answer(r, space, r.text not in self.operator_denied) for r in rights]
        return Examined(
            operator=Scene(OPERATOR_NAMESPACE, self.operator),
            spaces=[Scene(NAMESPACE, self.space, self.unread)],
            secrets={NAMESPACE: self.secrets},
            definition=self.definition,
            is_definition_known=self.is_definition_known,
            of_user=of_user,
            of_operators=of_operators,
            now=self.now,
            only=only,
            elsewhere=self.elsewhere,
        )


Change = Callable[[Cluster], Any]


def event(kind: str, name: str, reason: str, message: str) -> dict[str, Any]:
    """Return an event about an object."""
    return {
        "metadata": {"name": f"{name}.1"},
        "involvedObject": {"kind": kind, "name": name},
        "reason": reason,
        "message": message,
        "lastTimestamp": "2026-11-25T02:52:00Z",
    }


def condition(kind: str, reason: str, message: str = "said so") -> dict[str, Any]:
    """Return a condition of the fleet that holds."""
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "observedGeneration": 9,
    }


def policy(namespace: str, **spec: Any) -> dict[str, Any]:
    """Return a NetworkPolicy that selects all pods of a namespace."""
    return {
        "metadata": {"name": "strict", "namespace": namespace},
        "spec": {"podSelector": {}, **spec},
    }
