"""What a fleet itself says: conditions, workers, its token, pods that are missing."""

from collections.abc import Iterator, Sequence

from rlfleet_kubectl.core.doctor.finding import EACH, Finding, error, unknown, warning
from rlfleet_kubectl.core.doctor.scene import FleetScene, kubectl_in, seconds_since
from rlfleet_kubectl.core.names import OPERATOR_PODS
from rlfleet_view import reasons
from rlfleet_view.fleet import ConditionRow, RolloutRow, WorkerRow, age
from rlfleet_view.reasons import Reasons

_SERIOUS = frozenset({"RequestsWaiting"})
"""Reasons of Degraded that clients notice."""
_UNSEEN_S = 60.0
"""How old a spec is before it is a finding that it is unread, or that a pod is missing."""
_NO_PODS = "ObjectRefused"
"""The reason of Stalled that says why pods are missing."""
_AWAITS = "waiting: "
"""How the operator's message about a prepare begins that waits for the store."""
_CRASHED = "-c sidecar --previous"
"""What the operator's message about a sidecar that crashes has: how to read its log."""
_PREPARE_S = 900
"""Default of spec.rollout.timeouts.prepareSeconds."""
_TOKEN = "token"  # noqa: S105 - the name of a key
_TLS_KEYS = ("tls.crt", "tls.key", "ca.crt")


def of_fleet(scene: FleetScene, known: Reasons) -> Iterator[Finding]:
    """Yield what is wrong with a fleet."""
    yield from _of_spec(scene)
    for one in scene.fleet.conditions:
        if one.is_true:
            yield from _of_condition(one, scene, known)
    yield from _of_rollout(scene, known)
    for row in scene.fleet.workers:
        yield from _of_worker(row, scene, known)
    yield from _of_token(scene)
    yield from _of_pods(scene)


def _unchanged_s(scene: FleetScene) -> float:
    """Return for how long the spec has been as it is."""
    metadata = scene.fleet.raw["metadata"]
    changes = [
        str(one.get("time", ""))
        for one in metadata.get("managedFields") or ()
        if not one.get("subresource")
    ]
    return seconds_since(max(changes, default=metadata.get("creationTimestamp")), scene.now) or 0.0


def _of_spec(scene: FleetScene) -> Iterator[Finding]:
    fleet = scene.fleet
    if fleet.deleted_at:
        yield from _of_deletion(scene)
        return
    if fleet.is_observed or _unchanged_s(scene) < _UNSEEN_S:
        return
    seen = int(fleet.status.get("observedGeneration", -1))
    said = f"got status about generation {seen}, expected {fleet.generation}: no operator wrote it"
    mend = (
        f"{kubectl_in(scene.operator.namespace)} get deploy,lease,pods; if the operator runs, see"
        f" ReconcileFailed in: {kubectl_in(fleet.namespace)} describe rlf {fleet.name}"
    )
    yield error("NotObserved", scene.about, said, mend)


def _of_deletion(scene: FleetScene) -> Iterator[Finding]:
    """Yield what keeps a fleet that is being deleted; pods that end take a while."""
    since = seconds_since(scene.fleet.deleted_at, scene.now) or 0.0
    if since < _UNSEEN_S:
        return
    said = f"deleted {age(since)} ago, kept by finalizers: {scene.fleet.finalizers}"
    mend = "see what each finalizer's controller waits for; foregroundDeletion waits for pods"
    yield warning("DeletionHeld", scene.about, said, mend)


def _of_condition(one: ConditionRow, scene: FleetScene, known: Reasons) -> Iterator[Finding]:
    said = f"{one.type}: {one.reason}: {one.message}"
    mend = _mend(known, one.reason, scene)
    if one.type == "Stalled" or one.reason in _SERIOUS:
        yield error(one.type, scene.about, said, mend)
    elif one.type in {"Degraded", "Paused", "EngineUntested"}:
        yield warning(one.type, scene.about, said, mend)


def _of_rollout(scene: FleetScene, known: Reasons) -> Iterator[Finding]:
    """Yield why a version is refused before the condition Stalled says so, or a hold."""
    fleet, rollout = scene.fleet, scene.fleet.rollout
    if rollout is None or fleet.is_true("Stalled"):
        return
    yield from _awaited(rollout, scene)
    named, where = f"rollout {rollout.id} to {rollout.to}", f"{fleet.name} -n {fleet.namespace}"
    if rollout.phase == "Refused":
        code = next((word for word in rollout.message.split(": ") if word in known), "")
        said = f"{named} is refused: {rollout.message}"
        yield error("VersionRefused", scene.about, said, _mend(known, code, scene))
    elif rollout.phase == "Paused":
        said = f"{named} waits: spec.rollout.paused is true"
        yield warning("RolloutPaused", scene.about, said, f"kubectl rlf resume {where}")
    elif rollout.phase == "CanaryHold" and fleet.spec_at("rollout.canary.promote") == "Manual":
        said = f"{named} waits: its canaries serve, and rollout.canary.promote is Manual"
        yield warning("CanaryHold", scene.about, said, f"kubectl rlf promote {where}")


def _awaited(rollout: RolloutRow, scene: FleetScene) -> Iterator[Finding]:
    """Yield what a prepare waits for: it lasts for minutes before the version is rejected."""
    if rollout.is_under_way and _AWAITS in rollout.message:
        fleet = scene.fleet
        took = age(seconds_since(rollout.started_at, scene.now) or 0)
        said = f"rollout {rollout.id} to {rollout.to} for {took}: {rollout.message}"
        limit = fleet.spec_at("rollout.timeouts.prepareSeconds") or _PREPARE_S
        mend = f"have the trainer complete {rollout.to} (it is rejected after {limit} s), or"
        abort = f"kubectl rlf abort {fleet.name} -n {fleet.namespace}"
        yield warning("VersionAwaited", scene.about, said, f"{mend} {abort}")


def _mend(known: Reasons, reason: str, scene: FleetScene) -> str:
    todo = reasons.actions(known, reason)
    fleet = f"{scene.fleet.name} -n {scene.fleet.namespace}"
    return (
        "; ".join(todo) or f"kubectl rlf status {fleet}, and kubectl rlf explain {reason}".strip()
    )


def _of_worker(row: WorkerRow, scene: FleetScene, known: Reasons) -> Iterator[Finding]:
    if row.phase not in {"Unreachable", "Quarantined"}:
        return
    fleet = scene.fleet
    about = f"worker {fleet.namespace}/{row.name}"
    command = kubectl_in(fleet.namespace)
    if row.phase == "Quarantined":
        said = f"Quarantined, out of traffic: {row.message}"
        yield error("WorkerQuarantined", about, said, f"{command} delete pod {EACH}", row.name)
        return
    cause = next((name for name in known if name in row.message), "")
    why = "; ".join(entry.text for entry in known.get(cause, ()) if entry.column == "do")
    log = f"{command} logs {row.name} -c sidecar"
    # A sidecar that crashes refuses connections too, and no policy or mesh is at fault.
    mend = f"{log} --previous" if _CRASHED in row.message else why or log
    said = f"the operator gets no answer: {row.message}".removesuffix(": ")
    yield error("WorkerUnreachable", about, said, mend)


def _of_token(scene: FleetScene) -> Iterator[Finding]:
    fleet, name = scene.fleet, f"{scene.fleet.name}-admin"
    about, command = f"secret {fleet.namespace}/{name}", kubectl_in(fleet.namespace)
    if scene.secrets is None:
        said = "cannot read Secrets: their names and keys were not checked"
        test = f"kubectl auth can-i get secrets -n {fleet.namespace}"
        yield unknown("TokenUnknown", about, said, f"ask a user with this right: {test}")
        return
    if name not in scene.secrets:
        if _unchanged_s(scene) >= _UNSEEN_S:
            said = "got no Secret, expected the fleet's token, which the operator makes"
            mend = f"{kubectl_in(scene.operator.namespace)} logs -l {OPERATOR_PODS}"
            yield error("TokenMissing", about, said, mend)
    elif not scene.secrets[name].get(_TOKEN):
        said = f"got no value for key {_TOKEN}, expected a token: sidecars admit no caller"
        yield error("TokenEmpty", about, said, f"{command} delete secret {EACH}", name)
    yield from _of_other_secrets(scene)


def _of_other_secrets(scene: FleetScene) -> Iterator[Finding]:
    named = scene.fleet.spec_at("weights.source.credentialsSecret")
    if named and named not in (scene.secrets or {}):
        said = "got no Secret, expected the store's credentials (weights.source.credentialsSecret)"
        about = f"secret {scene.fleet.namespace}/{named}"
        create = f"create secret generic {named} --from-env-file=FILE"
        mend = f"{kubectl_in(scene.fleet.namespace)} {create}"
        yield error("CredentialsMissing", about, said, mend)
    yield from _of_certificate(scene)


def _of_certificate(scene: FleetScene) -> Iterator[Finding]:
    name = scene.fleet.spec_at("sidecar.tlsSecret")
    if not name:
        return
    known = scene.secrets or {}
    lacking = [key for key in _TLS_KEYS if not known.get(name, {}).get(key)]
    if lacking:
        what = f"no {lacking[0]}" if name in known else "no Secret"
        said = f"got {what}, expected {', '.join(_TLS_KEYS)} (sidecar.tlsSecret)"
        about = f"secret {scene.fleet.namespace}/{name}"
        files = " ".join(f"--from-file={key}" for key in _TLS_KEYS)
        create = f"create secret generic {name} {files}"
        way = f"{_added(name, lacking) if name in known else create}, or see cert-manager's"
        mend = f"{kubectl_in(scene.fleet.namespace)} {way} Certificate"
        yield error("CertificateMissing", about, said, mend)


def _added(name: str, keys: Sequence[str]) -> str:
    """Return what adds files to a Secret, of whatever type: its name is taken for `create`."""
    values = ",".join(f'\\"{key}\\":\\"$(base64 <{key} | tr -d \'\\n\')\\"' for key in keys)
    return f'patch secret {name} -p "{{\\"data\\":{{{values}}}}}"'


def _of_pods(scene: FleetScene) -> Iterator[Finding]:
    fleet = scene.fleet
    if not scene.space.knows("pods") or _unchanged_s(scene) < _UNSEEN_S:
        return
    count = sum(1 for _ in scene.pods())
    if count >= fleet.replicas:
        return
    full = [_fullness(quota) for quota in scene.space.of("resourcequotas")]
    quotas = "; ".join(one for one in full if one)
    said = f"got {count} pods, expected {fleet.replicas} (spec.replicas)"
    if quotas:
        mend = "raise the quota, or lower spec.replicas or spec.engine.resources"
        yield error("QuotaExceeded", scene.about, f"{said}; quota used up: {quotas}", mend)
    elif all(one.reason != _NO_PODS or not one.is_true for one in fleet.conditions):
        mend = f"kubectl rlf logs {fleet.name} -n {fleet.namespace} --only operator --since 10m"
        yield error(
            "PodsMissing",
            scene.about,
            f"{said}, {age(_unchanged_s(scene))} after the last change",
            mend,
        )


def _fullness(quota: dict[str, object]) -> str:
    status = quota.get("status")
    hard = (status.get("hard") or {}) if isinstance(status, dict) else {}
    used = (status.get("used") or {}) if isinstance(status, dict) else {}
    full = [
        f"{name} {used[name]} of {most}" for name, most in hard.items() if used.get(name) == most
    ]
    name = quota["metadata"]["name"] if isinstance(quota["metadata"], dict) else ""
    return f"{name} ({', '.join(full)})" if full else ""
