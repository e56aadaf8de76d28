"""The objects of examples/trainer as the demo applies them. Pure.

The example's own manifests are used, so the demo shows that they work. Replaced are the images,
which a development cluster cannot pull, and what an option of the demo sets.
"""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

FLEET = "learner"
DATA = "/data"
"""Where the volume with the model is mounted."""
SERVER = "tools/versitygw"
"""The S3 server's program below it."""
SCRIPTS = "/following"
_CONFIG_MAP = "following"
Manifest = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What a run of the demo does."""

    steps: int
    every_s: float
    keep: int
    """Newest versions that retention leaves in the bucket."""
    worker_image: str


def arranged(objects: Iterable[Manifest], plan: Plan) -> list[Manifest]:
    """Return the objects as they are applied, in their order."""
    changes: dict[str, Callable[[Manifest, Plan], None]] = {
        "RLInferenceFleet": _fleet,
        "Deployment": _store,
        "Job": _trainer,
    }
    made = []
    for one in objects:
        changed = copy.deepcopy(one)
        changes.get(one["kind"], _leave)(changed, plan)
        made.append(changed)
    return made


def of_kinds(objects: Iterable[Manifest], *kinds: str) -> list[Manifest]:
    """Return the objects of some kinds."""
    return [one for one in objects if one["kind"] in kinds]


def _leave(_object: Manifest, _plan: Plan) -> None:
    """Change nothing."""


def _fleet(fleet: Manifest, plan: Plan) -> None:
    fleet["spec"]["weights"]["retention"] = {"keep": plan.keep}


def _store(deployment: Manifest, plan: Plan) -> None:
    pod = deployment["spec"]["template"]["spec"]
    container = pod["containers"][0]
    container |= {"image": plan.worker_image, "command": [f"/volume/{SERVER}"]}
    container["volumeMounts"].append({"name": "volume", "mountPath": "/volume", "readOnly": True})
    pod["volumes"].append(
        {"name": "volume", "persistentVolumeClaim": {"claimName": "checkpoints", "readOnly": True}}
    )


def _trainer(job: Manifest, plan: Plan) -> None:
    pod = job["spec"]["template"]["spec"]
    container = pod["containers"][0]
    _, file = container["command"]
    target, model, *_ = container["args"]
    container |= {
        "image": plan.worker_image,
        "command": ["python3", f"{SCRIPTS}/kept.py", file],
        "args": [target, model, f"--steps={plan.steps}", f"--every={plan.every_s:g}"],
    }
    for mount in container["volumeMounts"]:
        if mount["mountPath"] == DATA:
            # The copies of the versions are written there.
            mount.pop("readOnly", None)
    container["volumeMounts"].append({"name": "scripts", "mountPath": SCRIPTS})
    pod["volumes"].append({"name": "scripts", "configMap": {"name": _CONFIG_MAP}})
