"""Executes a plan's actions on Kubernetes objects.

A conflict is no failure: another client was faster, and the next observation shows the result.
The API server's rejections reach status in its own words; an unusable pod template is rejected
here.
"""

import asyncio
import base64
import logging
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Any, assert_never

from rlfleet_contract.tls import CA_KEY
from rlfleet_operator.core.manifests import owned_objects as around
from rlfleet_operator.core.manifests import ownership, pod_manifest
from rlfleet_operator.core.manifests.owned_objects import AdminToken, UnusableTemplateError
from rlfleet_operator.core.model.actions import (
    CreatePod,
    DeletePod,
    MarkPod,
    PodAction,
    rest_s,
)
from rlfleet_operator.core.model.pod import lost_label
from rlfleet_operator.core.model.version_label import label_of
from rlfleet_operator.core.model.world import (
    READINESS_GATE,
    VERSION_LABEL,
    Fleet,
    Identity,
    time_of,
    worker_name,
)
from rlfleet_operator.core.status.events import KubeEvent
from rlfleet_operator.crd.fleet_spec import API_VERSION, GROUP, KIND
from rlfleet_operator.errors import Conflict, Missing, OperatorError, Refused, Retryable
from rlfleet_operator.kube import client as paths
from rlfleet_operator.kube.client import METADATA_OF_ONE, STRATEGIC_PATCH, Json, KubeClient

_log = logging.getLogger(__name__)
_PARALLEL = 16
_UNDECIDED = ("exceeded quota", "does not support dry run")
"""Rejections of a trial that do not show how the pod fares: the old one counts for the quota."""


async def pods(
    kube: KubeClient, fleet: Fleet, actions: Iterable[PodAction], defaults: pod_manifest.Defaults
) -> list[BaseException]:
    """Execute actions on pods, some concurrently; return their errors, defects included.

    Returns no sooner than the rate of labels allows.
    """
    begun, wanted, unmade = time.monotonic(), list(actions), list[BaseException]()
    limit = asyncio.Semaphore(_PARALLEL)
    if creations := [action for action in wanted if isinstance(action, CreatePod)]:
        (error,) = await asyncio.gather(_demand_there(kube, fleet), return_exceptions=True)
        if error is not None:
            unmade = [error] * len(creations)
            wanted = [action for action in wanted if action not in creations]

    async def one(action: PodAction) -> None:
        async with limit:
            try:
                await _pod(kube, fleet, action, defaults)
            except Missing:
                return
            except Conflict:
                await _demand_own(kube, fleet, action)

    ends = await asyncio.gather(*(one(action) for action in wanted), return_exceptions=True)
    errors = [*unmade, *(end for end in ends if end is not None)]
    for error in dict.fromkeys(errors):
        _log_error(fleet, error)
    await asyncio.sleep(rest_s(wanted, time.monotonic() - begun))
    return errors


async def _demand_there(kube: KubeClient, fleet: Fleet) -> None:
    """Raise Conflict if the fleet is being deleted.

    The watch may be late. Then the operator would create pods as fast as the garbage collector
    deletes them.
    """
    try:
        found = (await kube.get(paths.fleet_path(fleet.namespace, fleet.name)))["metadata"]
    except Missing:
        found = {}
    if found.get("uid") != fleet.uid or "deletionTimestamp" in found:
        raise Conflict(f"no pod created: fleet {fleet.name} is deleted or being deleted")


def _log_error(fleet: Fleet, error: BaseException) -> None:
    extra = {"namespace": fleet.namespace, "fleet": fleet.name, "error": str(error)}
    if isinstance(error, OperatorError):
        _log.warning("Failed to write a pod", extra=extra)
    else:
        _log.critical("Failed to write a pod: operator defect", exc_info=error, extra=extra)


async def _pod(
    kube: KubeClient, fleet: Fleet, action: PodAction, defaults: pod_manifest.Defaults
) -> None:
    match action:
        case CreatePod(ordinal):
            manifest = _manifest(fleet, ordinal, defaults)
            path = paths.object_path(fleet.namespace, "pods")
            await kube.create(path, manifest, accept=METADATA_OF_ONE)
            _log.info("Created pod", extra=_about(fleet, manifest["metadata"]["name"]))
        case DeletePod(name, uid, why, successor):
            if successor is not None:
                await _demand_acceptable(kube, fleet, successor, defaults)
            await kube.delete(paths.object_path(fleet.namespace, "pods", name), uid)
            _log.info("Deleted pod", extra={**_about(fleet, name), "reason": why})
        case MarkPod():
            await _mark(kube, fleet, action)
        case _:
            assert_never(action)


def _manifest(fleet: Fleet, ordinal: int, defaults: pod_manifest.Defaults) -> Json:
    try:
        return pod_manifest.pod(fleet, ordinal, defaults)
    except UnusableTemplateError as error:
        raise Refused(str(error)) from error


async def _demand_acceptable(
    kube: KubeClient, fleet: Fleet, ordinal: int, defaults: pod_manifest.Defaults
) -> None:
    """Raise Refused if the API server would not create the pod for which one that serves ends."""
    manifest = _manifest(fleet, ordinal, defaults)
    path = paths.object_path(fleet.namespace, "pods")
    try:
        await kube.create(path, manifest, accept=METADATA_OF_ONE, is_trial=True)
    except Conflict:
        # The name is the old pod's; the API server checks it last.
        return
    except Refused as error:
        if not any(words in str(error) for words in _UNDECIDED):
            raise


async def _mark(kube: KubeClient, fleet: Fleet, mark: MarkPod) -> None:
    path = paths.object_path(fleet.namespace, "pods", mark.name)
    condition = {
        "type": READINESS_GATE,
        "status": "True" if mark.ready else "False",
        "reason": "Proved" if mark.ready else "NotProved",
        "message": mark.message[:1024],
        "lastTransitionTime": time_of(time.time()),
    }
    identity = {"uid": mark.uid}
    label = {"metadata": {**identity, "labels": {VERSION_LABEL: label_of(mark.version)}}}
    gate = {"metadata": identity, "status": {"conditions": [condition]}}
    # The label first: a ready pod must never have the label of its former version.
    if mark.relabels:
        await kube.patch(path, label, accept=METADATA_OF_ONE)
    if mark.regates:
        await kube.patch(path + "/status", gate, STRATEGIC_PATCH, accept=METADATA_OF_ONE)
    extra = {**_about(fleet, mark.name), "ready": mark.ready, "version": mark.version}
    _log.info("Updated pod's readiness gate or version label", extra=extra)


async def _demand_own(kube: KubeClient, fleet: Fleet, action: PodAction) -> None:
    """Raise Retryable or Refused if another owner's pod has the name of the pod to create."""
    if not isinstance(action, CreatePod):
        return
    name = worker_name(fleet.name, action.ordinal)
    path = paths.object_path(fleet.namespace, "pods", name)
    try:
        taken = await kube.get(path)
    except OperatorError:
        return
    _demand_ours(taken, fleet, "Pod")
    if complaint := lost_label(taken, fleet, action.ordinal):
        raise Refused(complaint)


def _demand_ours(found: Json, fleet: Identity, kind: str) -> None:
    """Raise Retryable or Refused if an object does not belong to this fleet."""
    complaint = ownership.complaint(found, fleet, kind)
    if complaint is not None:
        raise (Retryable if complaint.may_pass else Refused)(complaint.message)


# --- owned objects ------------------------------------------------------------------------------


async def surroundings(kube: KubeClient, fleet: Fleet) -> None:
    """Create or update the Services and the PodDisruptionBudget."""
    for service in around.services(fleet):
        await _ensure(kube, fleet, paths.object_path(fleet.namespace, "services"), service)
    budget = around.disruption_budget(fleet)
    await _ensure(kube, fleet, paths.object_path(fleet.namespace, "poddisruptionbudgets"), budget)


async def _ensure(kube: KubeClient, fleet: Fleet, collection: str, wanted: Json) -> None:
    path = f"{collection}/{wanted['metadata']['name']}"
    try:
        found = await kube.get(path)
    except Missing:
        await kube.create(collection, wanted)
        return
    _demand_ours(found, fleet, wanted["kind"])
    selector = _exactly(found["spec"].get("selector"), wanted["spec"]["selector"])
    changes = {
        "metadata": {"labels": wanted["metadata"]["labels"]},
        "spec": wanted["spec"] | {"selector": selector},
    }
    if not _covers(found, changes):
        await kube.patch(path, changes)


def _exactly(found: Any, wanted: Any) -> Any:
    """Return ``wanted`` with a null, which removes it, for each other field of ``found``.

    A selector that another tool narrowed selects no worker: no request reaches one.
    """
    if not isinstance(found, Mapping) or not isinstance(wanted, Mapping):
        return wanted
    others = dict.fromkeys(found.keys() - wanted.keys())
    return others | {key: _exactly(found.get(key), value) for key, value in wanted.items()}


def _covers(found: Any, wanted: Any) -> bool:
    """Return whether ``found`` has every field of ``wanted`` with the same value."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            key in found and _covers(found[key], value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(map(_covers, found, wanted))
        )
    return bool(found == wanted)


async def admin_token(kube: KubeClient, fleet: Fleet) -> AdminToken:
    """Return the fleet's admin token; create it if it does not exist."""
    try:
        return await known_token(kube, fleet)
    except Missing:
        token = secrets.token_urlsafe(32)
        await kube.create(
            paths.object_path(fleet.namespace, "secrets"), around.secret(fleet, token)
        )
        return AdminToken(token)


async def known_token(kube: KubeClient, fleet: Identity) -> AdminToken:
    """Return the fleet's admin token; raises Missing without one, Refused if it is unusable.

    Raises Retryable while the garbage collector has not deleted an earlier fleet's Secret.
    """
    name = around.secret_name(fleet.name)
    found = await kube.get(paths.object_path(fleet.namespace, "secrets", name))
    _demand_ours(found, fleet, "Secret")
    try:
        return around.token_in(found)
    except UnusableTemplateError as error:
        raise Refused(str(error)) from error


async def ca_of(kube: KubeClient, namespace: str, name: str) -> str:
    """Return the CA (PEM) of a Secret; raises Missing without one, Refused if it has none."""
    found = await kube.get(paths.object_path(namespace, "secrets", name))
    encoded = (found.get("data") or {}).get(CA_KEY)
    if not encoded:
        raise Refused(f"Secret {name}: data.{CA_KEY} missing; add the CA of its certificate")
    return base64.b64decode(encoded).decode(errors="replace")


async def post_event(kube: KubeClient, about: Identity, event: KubeEvent) -> None:
    """Post an Event; log and drop it if that fails."""
    try:
        await kube.create(paths.object_path(about.namespace, "events"), _event(about, event))
    except OperatorError as error:
        extra = {"namespace": about.namespace, "fleet": about.name, "error": str(error)}
        _log.warning("Failed to post Event", extra={**extra, "reason": event.reason})


def _event(fleet: Identity, event: KubeEvent) -> Json:
    now = time_of(time.time())
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{fleet.name}.", "namespace": fleet.namespace},
        "involvedObject": {
            "apiVersion": f"{GROUP}/{API_VERSION}",
            "kind": KIND,
            "name": fleet.name,
            "namespace": fleet.namespace,
            "uid": fleet.uid,
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:1024],
        "source": {"component": "rlfleet-operator"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def _about(fleet: Fleet, worker: str) -> dict[str, str]:
    return {"namespace": fleet.namespace, "fleet": fleet.name, "worker": worker}
