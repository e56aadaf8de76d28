"""The time that rlfleet itself takes for a rollout of 16 to 10,000 workers with fake engines.

A real etcd and API server, the operator as a process with its default settings, and
real sidecars over fake engines in other processes; for 10,000 workers simulated ones (lean.py).
It times one rollout: from the answer to the patch of spec.weightVersion until the last worker has
proved the version (by its own report), and until the fleet's status reports that.
"""

import asyncio
import json
import subprocess
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from kubernetes.aio import client, config

from bench import machine, processes
from bench.findings import Part, most_within, paragraphs, rounded, summary
from bench.hollow import POLL_S, PROBE_S, VERSIONS
from bench.lean import CHANGE_S, PREPARE_S
from bench.witness import Witness
from dev import cache, steps
from dev.kubernetes import apiserver
from dev.steps import say
from rlfleet_operator.kube.client import KubeClient, fleet_path

BUDGETS = ("25%", "100%")
FLEET = "qwen"
REST_S = 30.0
_SETTLE_S = 6.0
_BOOT_S = 1800.0
_ROLLOUT_S = 300.0
_STEPS = ("prepare", "pause", "flush", "reload", "verify", "resume")
_STEP_S = 600


_NOTES = f"""
One rollout: from the answer to the patch of spec.weightVersion until the last worker's own
report says when it had proved the version; medians over the rollouts.

etcd, API server, controller-manager, operator and all sidecars share the machine's cores:
with 256 workers and more most of the time is theirs, not the operator's: compare the CPU seconds.

Engines are fakes that load a real tiny checkpoint at once. Sidecars are real and whole, with
their HTTP servers, journals and checks, but share as many processes as there are cores,
call their engines without a socket, and look at them every {POLL_S:g} s (1 s in a pod);
readiness every {PROBE_S:g} s. Engines preload nothing, as their threads would share the sidecars'
cores, which they do not in a pod.

Operator CPU is taken from /proc, from before the patch until status reported the end; API
writes are all its requests to Kubernetes other than GET, Events included.

Simulated sidecars, of the fleet of 10,000: their sockets, HTTP, token, messages, watches and
fences are real; a prepare waits {PREPARE_S:g} s and a change {CHANGE_S:g} s, without engine, disk
or journal. Their node writes on each pod what a kubelet would. Their CPU is the simulation's.

The sidecars' CPU has in it what they take at rest: that of a kubelet's readiness probe, every
{PROBE_S:g} s of each, and of the probe's sender here, which is in the same process.

At rest: {REST_S:g} s, beginning {_SETTLE_S:g} s after the last rollout.
"""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One measured rollout."""

    proved_s: float
    reported_s: float
    window_max_s: float
    cpu_s: float
    workers_cpu_s: float
    """Of all sidecars and fake engines."""
    api_writes: int
    api_bytes: int
    """What the operator sent to the API server."""
    passes: int
    """Of the operator's loop over the fleet."""
    pass_ms: float
    """What one took on average, without waiting."""
    writes_s: list[float]
    """When the status was written, in seconds after the patch."""

    @property
    def api_kib(self) -> float:
        """The same in KiB."""
        return self.api_bytes / 1024


@dataclass(frozen=True, slots=True)
class Bench:
    """One fleet under measurement."""

    kube: KubeClient
    namespace: str
    witness: Witness
    workers: processes.Workers
    operator: int

    async def patch(self, **spec: Any) -> None:
        """Merge-patch the fleet's spec."""
        await self.kube.patch(fleet_path(self.namespace, FLEET), {"spec": spec})

    async def rollout(self, version: str) -> Rollout:
        """Change the version and measure what it takes."""
        self.witness.forget()
        cpu, writes, sent = machine.cpu_s(self.operator), await _api_writes(), await _api_bytes()
        workers_cpu = self._workers_cpu()
        passes, inside_s = await _passes()
        await self.patch(weightVersion=version)
        begun = time.time()
        seen = await self.witness.until(lambda one: one.has_proved(version), _ROLLOUT_S)
        cpu, writes = machine.cpu_s(self.operator) - cpu, await _api_writes() - writes
        sent = await _api_bytes() - sent
        workers_cpu = self._workers_cpu() - workers_cpu
        passes_after, inside_after_s = await _passes()
        await asyncio.sleep(_SETTLE_S)
        reports = await self.workers.reports()
        return Rollout(
            proved_s=max(r["finished_at"] for r in reports) - begun,
            reported_s=seen.at - begun,
            window_max_s=max(r["window_s"] for r in reports),
            cpu_s=cpu,
            workers_cpu_s=workers_cpu,
            api_writes=writes,
            api_bytes=sent,
            passes=round(passes_after - passes),
            pass_ms=rounded((inside_after_s - inside_s) / (passes_after - passes) * 1000),
            writes_s=[round(at - begun, 2) for at in self.witness.writes()],
        )

    async def rest(self) -> tuple[int, float, float]:
        """Count status writes at rest; return them, and operator's and workers' share of a core."""
        await asyncio.sleep(_SETTLE_S)
        self.witness.forget()
        before, cpu = await _status_writes(), machine.cpu_s(self.operator)
        workers_cpu = self._workers_cpu()
        await asyncio.sleep(REST_S)
        share = (machine.cpu_s(self.operator) - cpu) / REST_S
        workers_share = (self._workers_cpu() - workers_cpu) / REST_S
        say(f"at rest: the operator takes {share:.1%} of a core, the workers {workers_share:.1%}")
        return max(await _status_writes() - before, len(self.witness.seen)), share, workers_share

    def _workers_cpu(self) -> float:
        return sum(map(machine.cpu_s, self.workers.pids))


async def _api_writes() -> int:
    port, name = processes.METRICS_PORT, "rlfleet_api_requests_total"
    found = await asyncio.to_thread(machine.counters, port, name)
    return round(sum(n for labels, n in found.items() if "GET" not in labels))


async def _api_bytes() -> int:
    port, name = processes.METRICS_PORT, "rlfleet_api_sent_bytes_total"
    return round(sum((await asyncio.to_thread(machine.counters, port, name)).values()))


async def _passes() -> tuple[float, float]:
    """Return how many passes the operator made, and how many seconds it was in them."""
    port, name = processes.METRICS_PORT, "rlfleet_reconcile_seconds"
    count = await asyncio.to_thread(machine.counters, port, f"{name}_count")
    seconds = await asyncio.to_thread(machine.counters, port, f"{name}_sum")
    return sum(count.values()), sum(seconds.values())


async def _status_writes() -> int:
    port, name = processes.METRICS_PORT, "rlfleet_status_writes_total"
    return round(sum((await asyncio.to_thread(machine.counters, port, name)).values()))


def measure(size: int, repeats: int, *, lean: bool = False) -> Part:
    """Measure so many rollouts of one fleet at each budget; ``lean``: with simulated sidecars."""
    steps.run(apiserver.ready_steps())
    with apiserver.running(apiserver.GARBAGE_COLLECTION + apiserver.SERVICE_ACCOUNTS) as plane:
        _kubectl(plane, "apply", "-f", str(cache.REPOSITORY / "crds"))
        apiserver.await_definition(plane)
        return _part(asyncio.run(_fleet(plane, size, repeats, lean=lean)))


def _kubectl(plane: apiserver.ControlPlane, *words: str) -> None:
    argv = ["kubectl", f"--kubeconfig={plane.kubeconfig}", *words]
    subprocess.run(argv, check=True, capture_output=True, timeout=60)


async def _fleet(
    plane: apiserver.ControlPlane, size: int, repeats: int, *, lean: bool
) -> dict[str, Any]:
    """Measure one fleet in a namespace of its own."""
    namespace = f"bench-{size}"
    _kubectl(plane, "create", "namespace", namespace)
    async with AsyncExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rlfleet-bench-")))
        settings = client.Configuration()
        await config.load_kube_config(str(plane.kubeconfig), client_configuration=settings)
        kube = KubeClient(client.ApiClient(settings))
        stack.push_async_callback(kube.close)
        witness = await stack.enter_async_context(Witness(kube, namespace, FLEET).watching())
        log = scratch / "operator.log"
        run = await stack.enter_async_context(processes.operator(plane, namespace, log))
        workers = await stack.enter_async_context(
            processes.workers(plane, namespace, scratch, lean=lean)
        )
        return await _measured(Bench(kube, namespace, witness, workers, run.pid), size, repeats)


async def _measured(bench: Bench, size: int, repeats: int) -> dict[str, Any]:
    say(f"{size} workers: starting")
    begun = time.time()
    await bench.kube.create(fleet_path(bench.namespace, "").rstrip("/"), _manifest(size))
    await bench.witness.until(lambda seen: seen.has_proved(VERSIONS[0]), _BOOT_S)
    boot_s = time.time() - begun
    # With their answer they leave what exists out of garbage collection (hollow.py).
    await bench.workers.reports()
    rollouts: dict[str, list[Rollout]] = {}
    turn = 0
    for budget in BUDGETS:
        await bench.patch(rollout={"maxUnavailable": budget})
        await asyncio.sleep(_SETTLE_S)
        for _ in range(repeats):
            turn += 1
            done = await bench.rollout(VERSIONS[turn % 2])
            rollouts.setdefault(budget, []).append(done)
            say(
                f"{size} workers, {budget}: proved {done.proved_s:.2f} s,"
                f" reported {done.reported_s:.2f} s, operator {done.cpu_s:.2f} s CPU,"
                f" {done.api_writes} API writes"
            )
    writes, share, workers_share = await bench.rest()
    raw = await bench.kube.get(fleet_path(bench.namespace, FLEET))
    return {
        "workers": size,
        "boot_s": round(boot_s, 1),
        "rollouts": rollouts,
        "rss_mib": machine.rss_mib(bench.operator),
        "writes_at_rest": writes,
        "cpu_at_rest": share,
        "workers_cpu_at_rest": workers_share,
        "object_kib": len(json.dumps(raw, separators=(",", ":")).encode()) / 1024,
    }


def _manifest(size: int) -> dict[str, Any]:
    return {
        "apiVersion": "rlfleet.dev/v1alpha1",
        "kind": "RLInferenceFleet",
        "metadata": {"name": FLEET},
        "spec": {
            "replicas": size,
            "weightVersion": VERSIONS[0],
            "model": {"name": "qwen", "path": "/models/qwen"},
            "weights": {"path": "/weights/{version}"},
            # All workers of a new fleet change at once, and here they share the cores.
            "rollout": {"timeouts": {f"{step}Seconds": _STEP_S for step in _STEPS}},
        },
    }


def _part(found: dict[str, Any]) -> Part:
    size, rollouts = str(found["workers"]), found["rollouts"]

    def middle(budget: str, field: str) -> dict[str, float]:
        return {size: rounded(median(getattr(r, field) for r in rollouts[budget]))}

    every = [r for rs in rollouts.values() for r in rs]
    return Part(
        figures={
            "control_time_s": middle("25%", "proved_s"),
            "control_time_all_at_once_s": middle("100%", "proved_s"),
            "operator_cpu_s": middle("25%", "cpu_s"),
            "operator_rss_mib": {size: rounded(found["rss_mib"])},
            "api_writes": middle("25%", "api_writes"),
            "api_sent_kib": middle("25%", "api_kib"),
            "fleet_object_kib": {size: rounded(found["object_kib"])},
            "status_writes_per_s_max": {size: max(most_within(r.writes_s, 1.0) for r in every)},
            "status_writes_at_rest": {size: found["writes_at_rest"]},
        },
        detail={
            "tables": {"Rollouts": _rows(found)},
            "rollouts": [
                {"max_unavailable": budget, **asdict(rollout)}
                for budget, measured in rollouts.items()
                for rollout in measured
            ],
            "fleet": {key: value for key, value in found.items() if key != "rollouts"},
        },
        notes=paragraphs(_NOTES),
    )


def _rows(fleet: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for budget, rollouts in fleet["rollouts"].items():
        proved = summary(r.proved_s for r in rollouts)
        rows.append(
            {
                "workers": fleet["workers"],
                "maxUnavailable": budget,
                "proved, s": f"{proved['median']:g} ({proved['min']:g} to {proved['max']:g})",
                "status reports, s": rounded(median(r.reported_s for r in rollouts)),
                "longest window, s": rounded(median(r.window_max_s for r in rollouts)),
                "operator CPU, s": rounded(median(r.cpu_s for r in rollouts)),
                "sidecars' CPU, s": rounded(median(r.workers_cpu_s for r in rollouts)),
                "API writes": round(median(r.api_writes for r in rollouts)),
                "passes": round(median(r.passes for r in rollouts)),
                "ms a pass": rounded(median(r.pass_ms for r in rollouts)),
                "status writes": round(median(len(r.writes_s) for r in rollouts)),
                "operator at rest, % of a core": rounded(fleet["cpu_at_rest"] * 100),
                "sidecars at rest, % of a core": rounded(fleet["workers_cpu_at_rest"] * 100),
            }
        )
    return rows
