"""The same change without rlfleet: a Deployment's rollout to another --model.

Two replicas of the same image with the same flags, without gate, extension and sidecar.
"""

import json
import time
from typing import Any

from bench import cluster
from bench.findings import Part, paragraphs, rounded, summary
from bench.fleet import BOOT_S, Fleet
from dev.images import names
from dev.shell import Shell
from dev.steps import say
from rlfleet_contract import paths
from rlfleet_operator.core.manifests import pod_manifest
from rlfleet_operator.core.model.fleet import fleet_from

NAME = "baseline"
_REPLICAS = 2
_OURS = ("--middleware=", "--worker-extension-cls=", "--model=")
_NOTES = """
restart_baseline_s: a Deployment of 2 replicas whose template names the version's directory as
--model, patched to the next version's: from kubectl patch's return until kubectl rollout status
says that it is complete. Kubernetes' default strategy (for 2 replicas: one new pod more at a
time, none less); ready means that vLLM's /health answers, looked at every 2 s; image and
weights are on the node already. Median.

restart_ratio divides it by rlfleet's patch_to_proved_s with 2 workers (part rollout: same
machine and image, one worker at a time, too). It holds for a model that loads in no time:
the rest is the engine's start, which grows with the model, as does a reload.
"""


def measure(*, repeats: int, as_it_is: bool) -> Part:
    """Roll the Deployment so many times."""
    took = []
    with cluster.ready(as_it_is=as_it_is) as shell:
        model = cluster.TINY
        cluster.write_checkpoints(shell, model)
        cluster.run_script(shell, "bootable.py", "/data", model.name, *model.versions)
        apply(shell, model, model.versions[0])
        complete(shell)
        for turn in range(repeats):
            apply(shell, model, model.versions[(turn + 1) % 2])
            begun = time.time()
            complete(shell)
            took.append(time.time() - begun)
            say(f"rolled in {took[-1]:.1f} s")
    found = summary(took)
    return Part(
        figures={"restart_baseline_s": rounded(found["median"])},
        detail={
            "tables": {"A Deployment's rollout, seconds": [{"workers": _REPLICAS, **found}]},
            "took_s": took,
        },
        notes=paragraphs(_NOTES),
    )


def apply(shell: Shell, model: cluster.Model, version: str, *, replicas: int = _REPLICAS) -> None:
    """Have the Deployment serve this version, sooner or later."""
    body = _deployment(shell, model, version, replicas)
    shell.kubectl("apply", "-f", "-", stdin=json.dumps(body))


def complete(shell: Shell) -> None:
    """Wait until its rollout is complete."""
    shell.kubectl("rollout", "status", f"deployment/{NAME}", f"--timeout={BOOT_S}s")


def service() -> dict[str, Any]:
    """Return the Service of its pods."""
    port = {"port": paths.ENGINE_PORT, "targetPort": "http"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME},
        "spec": {"selector": {"app": NAME}, "ports": [port]},
    }


def _deployment(shell: Shell, model: cluster.Model, version: str, replicas: int) -> dict[str, Any]:
    """Return the fleet's own pod with nothing of rlfleet in it."""
    raw = Fleet(shell, model).manifest()
    raw["metadata"] |= {"namespace": cluster.NAMESPACE, "uid": "", "generation": 1}
    defaults = pod_manifest.Defaults(names.recorded()["worker"])
    pod = pod_manifest.pod(fleet_from(raw), 0, defaults)["spec"]
    labels = {"app": NAME}
    spec = {
        "automountServiceAccountToken": False,
        "securityContext": pod["securityContext"],
        "containers": [_engine(pod["containers"][0], version)],
        "volumes": [v for v in pod["volumes"] if v["name"] not in {"state", "token"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _engine(engine: dict[str, Any], version: str) -> dict[str, Any]:
    args = [arg for arg in engine["args"] if not arg.startswith(_OURS)]
    health = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 2}
    return {
        **{key: value for key, value in engine.items() if key != "lifecycle"},
        "args": [f"--model=/data/bootable/{version}", *args],
        "readinessProbe": health,
    }
