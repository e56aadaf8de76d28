"""Changes of a healthy cluster, each a defect or what looks like one, and what must be found."""

from typing import Any

from rlfleet_kubectl.core.doctor.finding import Severity
from tests.unit.rlfleet_kubectl.clusters import Change, Cluster, policy

Defect = tuple[str, Change, Severity, str, str, str]
"""What is wrong in words, the change, and of the finding: severity, check, what is found, mend."""
AT = "2026-11-25T02:51:00Z"
"""When a container ended that runs again."""


def waiting(container: str, reason: str, message: str = "") -> Change:
    """Have a container wait."""

    def change(cluster: Cluster) -> None:
        state = {"waiting": {"reason": reason, "message": message}}
        cluster.container(container).update({"state": state, "ready": False})

    return change


def ended(container: str, reason: str, code: int, at: str = AT) -> Change:
    """Have a container run again after it ended."""

    def change(cluster: Cluster) -> None:
        last = {"terminated": {"reason": reason, "exitCode": code, "finishedAt": at}}
        cluster.container(container).update({"lastState": last, "restartCount": 3})

    return change


def both(*changes: Change) -> Change:
    def change(cluster: Cluster) -> None:
        for one in changes:
            one(cluster)

    return change


def unscheduled(message: str) -> Change:
    def change(cluster: Cluster) -> None:
        cluster.pod["status"] = {
            "phase": "Pending",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": message,
                }
            ],
        }

    return change


def in_fleet(path: str, value: Any) -> Change:
    """Set a field of the fleet, by its dotted path."""

    def change(cluster: Cluster) -> None:
        *parts, last = path.split(".")
        at = cluster.fleet
        for part in parts:
            at = at.setdefault(part, {})
        at[last] = value

    return change


def setting(name: str, value: str) -> Change:
    """Set a variable of the operator."""

    def change(cluster: Cluster) -> None:
        env = cluster.deployment["spec"]["template"]["spec"]["containers"][0]["env"]
        env[:] = [one for one in env if one["name"] != name] + [{"name": name, "value": value}]

    return change


def policed(where: str, **spec: Any) -> Change:
    namespace = {"space": "plugin", "operator": "plugin-system"}[where]
    return lambda cluster: getattr(cluster, where)["networkpolicies"].append(
        policy(namespace, **spec)
    )


def replicas(**status: int) -> Change:
    return lambda cluster: cluster.deployment["status"].update(status)


def refused(message: str) -> Change:
    return lambda cluster: cluster.fleet["status"]["rollout"].update(
        {"phase": "Refused", "to": "step-9", "message": message}
    )


def put(where: str, value: Any) -> Change:
    return lambda cluster: setattr(cluster, where, value)


HTTP = {"ports": [{"port": 8000}]}


def demand_found(defect: Defect) -> None:
    """Demand that a defect shows as its finding."""
    _, change, severity, check, found, mend = defect
    cluster = Cluster()
    change(cluster)

    shown = {one.check: one for one in cluster.diagnosed()}
    assert check in shown
    assert shown[check].severity is severity
    assert found in shown[check].found
    assert mend in shown[check].mend


def demand_nothing(change: Change) -> None:
    """Demand that a change shows no finding."""
    cluster = Cluster()
    change(cluster)

    assert cluster.diagnosed() == []
