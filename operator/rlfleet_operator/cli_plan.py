"""``python -m rlfleet_operator plan -f fleet.yaml``: previews the rollout of a manifest.

It reads the file and the live fleet, asks no worker and writes nothing. Fields that the file
does not name keep their live values, as with ``kubectl apply``.
"""

import asyncio
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import yaml
from kubernetes.aio.config import ConfigException, list_kube_config_contexts
from pydantic import ValidationError

from rlfleet_operator.core.manifests import pod_manifest
from rlfleet_operator.core.model.fleet import fleet_from
from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.simulation.model_fleet import workers_from_status
from rlfleet_operator.core.simulation.preview import preview
from rlfleet_operator.crd.fleet_spec import KIND
from rlfleet_operator.errors import Missing, OperatorError
from rlfleet_operator.kube.client import Json, KubeClient, fleet_path
from rlfleet_operator.settings import OWN_NAMESPACE

_WAY_OUT = "to plan without a cluster, from the status in the file, add --offline"


class _BadFile(Exception):  # noqa: N818 - never leaves this file
    """The file, or the fleet that it names, cannot be read."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument(
        "-f", "--file", required=True, help="manifest with RLInferenceFleet objects; - for stdin"
    )
    parser.add_argument(
        "-n",
        "--namespace",
        help="namespace of fleets whose manifest names none (default: the pod's own, outside a pod"
        " the kubeconfig's)",
    )
    parser.add_argument(
        "--offline",
        action="store_true",
        help="plan without a cluster, from the status in the file (kubectl get rlf NAME -o yaml)",
    )


def main(chosen: Namespace) -> int:
    """Print the preview of every fleet in the file; return the exit status."""
    try:
        for wanted in _fleets_in(chosen.file):
            if chosen.namespace:
                wanted["metadata"].setdefault("namespace", chosen.namespace)
            live = wanted if chosen.offline else asyncio.run(live_of(wanted))
            _print(wanted, live)
    except (_BadFile, OperatorError) as error:
        sys.stderr.write(f"failed to plan {chosen.file}: {error}\n")
        return 1
    return 0


def _fleets_in(name: str) -> list[Json]:
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text()
        found = [one for one in yaml.safe_load_all(text) if isinstance(one, dict)]
    except (OSError, yaml.YAMLError) as error:
        raise _BadFile(str(error)) from error
    fleets = [one for one in found if one.get("kind") == KIND]
    if not fleets:
        raise _BadFile(f"contains no {KIND}; name a file that has one")
    return fleets


async def live_of(
    wanted: Json,
    connect: Callable[[], Awaitable[KubeClient]] = KubeClient.connect,
    own_namespace: Path = OWN_NAMESPACE,
) -> Json | None:
    """Return the live object, or None; writes the namespace that it used into ``wanted``."""
    metadata = wanted["metadata"]
    try:
        # Only without a namespace is a kubeconfig needed, and a pod has none.
        metadata["namespace"] = metadata.get("namespace") or _namespace(own_namespace)
        kube = await connect()
    except ConfigException as error:
        raise _BadFile(f"{error}\n{_WAY_OUT}") from error
    try:
        return await kube.get(fleet_path(metadata["namespace"], metadata["name"]))
    except Missing:
        return None
    except OperatorError as error:
        raise _BadFile(f"{error}\n{_WAY_OUT}") from error
    finally:
        await kube.close()


def _namespace(own: Path) -> str:
    """Return the namespace of the connection: in a pod its ServiceAccount's."""
    try:
        return own.read_text().strip()
    except OSError:
        _, active = list_kube_config_contexts()
        return str(active["context"].get("namespace") or "default")


def _print(wanted: Json, live: Json | None) -> None:
    metadata = wanted["metadata"]
    lines = preview(_world(wanted, live))
    found = "" if live else " (does not exist yet)"
    head = f"{metadata['name']} in {metadata.get('namespace', 'default')}{found}"
    sys.stdout.write("\n  ".join([head, *lines]) + "\n")


def _world(wanted: Json, live: Json | None) -> World:
    known = {"namespace": "default", "uid": "unknown", "generation": 1}
    base = live or {"metadata": known, "spec": {}}
    merged = {
        "metadata": known | wanted["metadata"] | base["metadata"],
        "spec": _laid_over(base["spec"], wanted.get("spec") or {}),
        "status": base.get("status") or {},
    }
    try:
        fleet = fleet_from(merged)
        before = fleet_from(merged | {"spec": base["spec"]}) if live else fleet
    except ValidationError as error:
        faults = (f"spec.{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise _BadFile("; ".join(faults)) from error
    return World(
        fleet=fleet,
        workers=workers_from_status(fleet, pod_manifest.template_hash(before)),
        template_hash=pod_manifest.template_hash(fleet),
        moment=time.time(),
    )


def _laid_over(base: Any, over: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return base | {key: _laid_over(base.get(key), value) for key, value in over.items()}
