"""The pod of a worker, as a pure function of the fleet's spec.

The pod complies with Pod Security *restricted*. ``template_hash`` covers the user's spec and not
this module's output, so that an operator upgrade restarts no worker.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from rlfleet_contract import paths
from rlfleet_operator.core.manifests import probes, quantity, sidecar_tls, store_access
from rlfleet_operator.core.manifests.owned_objects import (
    ManifestObject,
    UnusableTemplateError,
    headless_name,
    metadata_of,
    secret_name,
)
from rlfleet_operator.core.manifests.template_merge import allowed, merged, with_ours
from rlfleet_operator.core.model.pod import identity_of
from rlfleet_operator.core.model.world import (
    ENGINE_CONTAINER,
    SELF_TEST_ANNOTATION,
    SIDECAR_CONTAINER,
    TEMPLATE_ANNOTATION,
    Fleet,
    worker_name,
)
from rlfleet_operator.crd.field_types import MARKER_PATTERN
from rlfleet_operator.crd.fleet_spec import CacheSpec, WeightsSpec
from rlfleet_operator.crd.worker_spec import EngineSpec, ResourceList

USER_ID = 65532
"""The images' user as a number, so that Kubernetes can check that it is not root."""
_END_SECONDS = 30
"""What the processes have for their end, after the engine has drained."""
_DRAIN = ["python3", "-m", "rlfleet_engine.drain"]
_TOKEN_DIR = "/var/run/rlfleet/token"  # noqa: S105 - a path
_STATE_DIR = "/var/lib/rlfleet"
_CACHE_DIR = "/var/cache/rlfleet"
_CACHE_SIZE = "1Ti"
_SIDECAR_REQUESTS = {"cpu": "250m", "memory": "256Mi"}
_OF_NO_POD = ("digest", "run_id", "step", "follow", "retention", "sharing")
"""Fields of weights that commands carry: those about one version, and what workers do with all."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """Settings of the installation that a fleet may override."""

    worker_image: str


def template_hash(fleet: Fleet) -> str:
    """Return a digest of the fields whose change replaces the pods."""
    spec = fleet.spec.model_dump(
        mode="json",
        by_alias=True,
        include={"model", "weights", "engine", "sidecar", "template"},
        # A release that adds a field with a default must restart no worker.
        exclude_defaults=True,
        exclude={"weights": set(_OF_NO_POD)},
    )
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def pod(fleet: Fleet, ordinal: int, defaults: Defaults) -> ManifestObject:
    """Return the pod of one worker; raises UnusableTemplateError, which names the field."""
    name = worker_name(fleet.name, ordinal)
    metadata = metadata_of(fleet, name)
    metadata["labels"]["app.kubernetes.io/component"] = "worker"
    manifest: ManifestObject = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "hostname": name,
            "subdomain": headless_name(fleet.name),
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": fleet.spec.engine.drain_seconds + _END_SECONDS,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER_ID,
                "runAsGroup": USER_ID,
                "fsGroup": USER_ID,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "initContainers": [_sidecar(fleet, defaults)],
            "containers": [_engine(fleet, defaults)],
            "volumes": _volumes(fleet),
        },
    }
    manifest = _overlaid(manifest, fleet)
    # A restart of the engine is known by its process 1, which must be the container's own.
    manifest["spec"] |= {"shareProcessNamespace": False, "hostPID": False}
    # Without the readiness gate a worker would take traffic before it has proved a version.
    manifest["spec"]["readinessGates"] = with_ours(manifest["spec"].get("readinessGates"))
    mine = {
        "labels": identity_of(fleet, ordinal),
        "annotations": {TEMPLATE_ANNOTATION: template_hash(fleet), **_remembered(fleet)},
    }
    # Last, so that the template cannot change or remove the labels that identify a pod.
    for kind, own in mine.items():
        manifest["metadata"][kind] = manifest["metadata"].get(kind, {}) | own
    return manifest


def _overlaid(manifest: ManifestObject, fleet: Fleet) -> ManifestObject:
    overlaid: ManifestObject = merged(manifest, allowed(fleet.spec.template))
    _demand_no_key(overlaid["spec"].get("containers"))
    return overlaid


def _demand_no_key(containers: Any) -> None:
    """Raise UnusableTemplateError if an engine demands a key that the extension cannot know.

    The schema refuses it in engine.args, and not in the template.
    """
    for container in containers if isinstance(containers, list) else ():
        is_engine = isinstance(container, Mapping) and container.get("name") == ENGINE_CONTAINER
        flags = container.get("args") if is_engine else None
        if isinstance(flags, list) and any(_flag(flag) == "--api-key" for flag in flags):
            raise UnusableTemplateError(
                f"container {ENGINE_CONTAINER}: --api-key in args hides the key from the sidecar's"
                " probe; set VLLM_API_KEY in engine.extraEnv instead"
            )


def _flag(argument: Any) -> str:
    return str(argument).partition("=")[0].replace("_", "-")


def _remembered(fleet: Fleet) -> dict[str, str]:
    """Return the self-test's result of an equal engine, so that new pods skip the test.

    One that failed is not remembered: a new pod may show that it was its node's fault.
    """
    test = fleet.status.self_test
    if test is None or not test.passed or test.template != template_hash(fleet):
        return {}
    return {SELF_TEST_ANNOTATION: test.for_pod()}


def image_of(fleet: Fleet, defaults: Defaults) -> str:
    """Return the engine's image."""
    return fleet.spec.engine.image or defaults.worker_image


_CONTAINER: ManifestObject = {
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    },
    # What a container wrote last goes to status.
    "terminationMessagePolicy": "FallbackToLogsOnError",
}


def _engine(fleet: Fleet, defaults: Defaults) -> ManifestObject:
    engine = fleet.spec.engine
    return {
        "name": ENGINE_CONTAINER,
        "image": image_of(fleet, defaults),
        "imagePullPolicy": engine.image_pull_policy,
        "command": ["python3", "-m", "rlfleet_engine.vllm.serve"],
        "args": [
            f"--model={fleet.spec.model.path}",
            f"--served-model-name={fleet.spec.model.name}",
            "--host=0.0.0.0",
            f"--port={paths.ENGINE_PORT}",
            "--load-format=safetensors",
            f"--tensor-parallel-size={engine.tensor_parallel_size}",
            "--middleware=rlfleet_engine.middleware.Extension",
            "--worker-extension-cls=rlfleet_engine.worker.ReloadExtension",
            # Opens /inference/v1/generate, for samplers that use token ids. The flag
            # --no-enable-scale-out in engine.args closes it.
            "--enable-scale-out",
            # The sidecar polls its engine every second.
            "--disable-uvicorn-access-log",
            *engine.args,
        ],
        "env": [
            {"name": "HOME", "value": "/tmp"},  # noqa: S108 - an emptyDir of the pod
            # The user has no name in the image's /etc/passwd; libraries ask for one.
            {"name": "USER", "value": "rlfleet"},
            {"name": "HF_HUB_OFFLINE", "value": "1"},
            {"name": "VLLM_NO_USAGE_STATS", "value": "1"},
            # Opens vLLM's control routes; the extension exposes them on loopback only.
            {"name": "VLLM_SERVER_DEV_MODE", "value": "1"},
            # With vLLM's default of 5 s, a server may close a connection while the client's next
            # request is on its way. With an hour, clients close idle connections first.
            {"name": "VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "value": "3600"},
            *_names(fleet),
            *({"name": e.name, "value": e.value} for e in engine.extra_env),
        ],
        "ports": [{"name": "http", "containerPort": paths.ENGINE_PORT, "protocol": "TCP"}],
        "resources": engine.resources.model_dump(),
        **_CONTAINER,
        "startupProbe": probes.probe("/health", "http", period=2, failures=1800),
        "livenessProbe": probes.probe("/health", "http", period=10, failures=6),
        "lifecycle": {"preStop": {"exec": {"command": _drain(engine)}}},
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - an emptyDir of the pod
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the same
            *({**mount, "readOnly": True} for mount in _cache_mounts(fleet)),
            *_data_mounts(fleet),
        ],
    }


def _drain(engine: EngineSpec) -> list[str]:
    return [*_DRAIN, f"--seconds={engine.drain_seconds}"]


def _names(fleet: Fleet) -> list[ManifestObject]:
    """Return the variables with the names in a worker's log lines, for both containers."""
    return [
        {"name": "RLFLEET_NAMESPACE", "value": fleet.namespace},
        {"name": "RLFLEET_FLEET", "value": fleet.name},
        _of_pod("RLFLEET_WORKER", "metadata.name"),
    ]


def _of_pod(variable: str, path: str) -> ManifestObject:
    """Return a variable with the value of the pod's own field."""
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _sidecar(fleet: Fleet, defaults: Defaults) -> ManifestObject:
    """Return the admin sidecar, a native one: it starts before the engine and ends after it."""
    scheme = sidecar_tls.scheme(fleet)
    return {
        "name": SIDECAR_CONTAINER,
        "image": fleet.spec.sidecar.image or image_of(fleet, defaults),
        "imagePullPolicy": fleet.spec.engine.image_pull_policy,
        "restartPolicy": "Always",
        "command": ["python3", "-m", "rlfleet_sidecar"],
        "env": [
            *({"name": name, "value": value} for name, value in _sidecar_env(fleet).items()),
            *_names(fleet),
            _of_pod("RLFLEET_POD_UID", "metadata.uid"),
            _of_pod("RLFLEET_SELF_TEST", f"metadata.annotations['{SELF_TEST_ANNOTATION}']"),
        ],
        "ports": [{"name": "admin", "containerPort": paths.ADMIN_PORT, "protocol": "TCP"}],
        "resources": _sidecar_resources(fleet.spec.sidecar.resources),
        **_CONTAINER,
        "startupProbe": probes.probe(paths.LIVE_PATH, "admin", period=1, failures=120, **scheme),
        "livenessProbe": probes.probe(paths.LIVE_PATH, "admin", period=10, failures=3, **scheme),
        "readinessProbe": probes.readiness(paths.READY_PATH, "admin", **scheme),
        "volumeMounts": [
            {"name": "token", "mountPath": _TOKEN_DIR, "readOnly": True},
            {"name": "state", "mountPath": _STATE_DIR},
            *sidecar_tls.mounts(fleet),
            *store_access.mounts(fleet.spec.weights),
            *_cache_mounts(fleet),
            *_data_mounts(fleet, is_writer=True),
        ],
    }


def _sidecar_resources(asked: ResourceList) -> ManifestObject:
    """Return the sidecar's resources: without requests, a busy engine delays it for seconds.

    Kubernetes takes a limit without a request as the request, which may be lower than the default.
    """
    named = asked.requests | asked.limits
    ours = {name: value for name, value in _SIDECAR_REQUESTS.items() if name not in named}
    return {"requests": ours | asked.requests, "limits": asked.limits}


def _markers(weights: WeightsSpec) -> list[str]:
    for marker in weights.markers:
        if re.fullmatch(MARKER_PATTERN, marker) is None or marker in {".", ".."}:
            raise UnusableTemplateError(
                f"spec.weights.markers: got {marker!r:.80}, expected a file name without '/' or ','"
            )
    return weights.markers


def _sidecar_env(fleet: Fleet) -> dict[str, str]:
    weights = fleet.spec.weights
    env = {
        "RLFLEET_FLEET_UID": fleet.uid,
        "RLFLEET_MODEL_NAME": fleet.spec.model.name,
        "RLFLEET_MODEL_PATH": fleet.spec.model.path,
        "RLFLEET_TOKEN_FILE": f"{_TOKEN_DIR}/token",
        "RLFLEET_STATE_DIR": _STATE_DIR,
        **sidecar_tls.env(fleet),
    }
    engine = fleet.spec.engine
    if engine.self_test_seconds != EngineSpec().self_test_seconds:
        env["RLFLEET_SELF_TEST_S"] = str(engine.self_test_seconds)
    if not engine.preload:
        env["RLFLEET_PRELOAD_S"] = "0"
    if fleet.spec.sidecar.experimental_transfer:
        env["RLFLEET_EXPERIMENTAL_TRANSFER"] = "true"
    if engine.require_tested:
        env["RLFLEET_REQUIRE_TESTED"] = "true"
    if weights is not None:
        env |= store_access.env(weights)
        env["RLFLEET_MARKERS"] = ",".join(_markers(weights))
        env |= _cache_env(weights.cache)
    return env


def _volumes(fleet: Fleet) -> list[ManifestObject]:
    memory = {"medium": "Memory", "sizeLimit": fleet.spec.engine.shared_memory}
    caches = _cache_mounts(fleet)
    return [
        {"name": "shm", "emptyDir": memory},
        {"name": "tmp", "emptyDir": {}},
        {"name": "state", "emptyDir": {"sizeLimit": "64Mi"}},
        {"name": "token", "secret": {"secretName": secret_name(fleet.name)}},
        *({"name": mount["name"], "emptyDir": _cache_volume(fleet)} for mount in caches),
        *sidecar_tls.volumes(fleet),
        *store_access.volumes(fleet.spec.weights),
        *({"name": name, **source} for name, source, _ in _data_volumes(fleet)),
    ]


def _cache_mounts(fleet: Fleet) -> list[ManifestObject]:
    weights = fleet.spec.weights
    has_cache = weights is not None and weights.cache.enabled
    return [{"name": "cache", "mountPath": _CACHE_DIR}] if has_cache else []


def _cache_volume(fleet: Fleet) -> ManifestObject:
    cache = fleet.spec.weights.cache if fleet.spec.weights else CacheSpec()
    medium = {"medium": "Memory"} if cache.medium == "Memory" else {}
    return {"sizeLimit": _CACHE_SIZE if cache.size is None else cache.size, **medium}


def _cache_env(cache: CacheSpec) -> dict[str, str]:
    if not cache.enabled:
        return {}
    env = {
        "RLFLEET_CACHE_DIR": _CACHE_DIR,
        "RLFLEET_CACHE_BYTES": str(_cache_bytes(cache)),
    }
    # A tmpfs belongs to the pod alone, so no space must be left free for others.
    return env | ({"RLFLEET_CACHE_SPARE": "0"} if cache.medium == "Memory" else {})


def _cache_bytes(cache: CacheSpec) -> int:
    try:
        size = quantity.in_bytes(_CACHE_SIZE if cache.size is None else cache.size)
    except ValueError as error:
        raise _bad_cache_size(str(error)) from error
    if size <= 0:
        raise _bad_cache_size(f"got {cache.size!r}, expected more than 0")
    return size


def _bad_cache_size(why: str) -> UnusableTemplateError:
    return UnusableTemplateError(
        f"spec.weights.cache.size: {why}; write a size such as 100Gi, or remove the field"
    )


def _data_mounts(fleet: Fleet, *, is_writer: bool = False) -> list[ManifestObject]:
    """Return the mounts; only a writer that accepts a trainer's offers has the weights writable."""
    weights = fleet.spec.weights
    writable = {"weights"} if is_writer and weights is not None and weights.acknowledge else set()
    return [
        {"name": name, "mountPath": path} | ({} if name in writable else {"readOnly": True})
        for name, _, path in _data_volumes(fleet)
    ]


def _data_volumes(fleet: Fleet) -> list[tuple[str, ManifestObject, str]]:
    """Return name, source and mount path of the model's and the weights' volumes."""
    model, weights = fleet.spec.model, fleet.spec.weights
    found: list[tuple[str, ManifestObject, str]] = []
    if model.volume:
        found.append(("model", model.volume, model.mount_path or model.path))
    if weights is not None and weights.volume and weights.path:
        found.append(("weights", weights.volume, weights.mount_path or weights_root(weights.path)))
    return found


def weights_root(path: str) -> str:
    """Return the part of weights.path before the directory that holds {version}."""
    parts = PurePosixPath(path).parts
    first = next(place for place, part in enumerate(parts) if "{version}" in part)
    return str(PurePosixPath(*parts[:first]))
