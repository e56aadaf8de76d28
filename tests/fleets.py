"""Fleets and worlds for tests, as few words as possible."""

from dataclasses import replace
from typing import Any

from rlfleet_operator.core.manifests import pod_manifest
from rlfleet_operator.core.model.fleet import fleet_from
from rlfleet_operator.core.model.world import Fleet, Worker, World
from rlfleet_operator.core.simulation import model_fleet, model_worker
from rlfleet_operator.crd.fleet_status import FleetStatus

_PRONOUNS = {"it", "its", "they", "this", "that", "one", "nobody"}


def fleet(spec: dict[str, Any] | None = None, *, status: dict[str, Any] | None = None) -> Fleet:
    """Return a fleet whose spec holds the least there can be, and ``spec``."""
    least = {
        "model": {"name": "qwen", "path": "/models/qwen"},
        "weights": {"path": "/weights/{version}"},
    }
    return fleet_from(
        {
            "metadata": {
                "name": "qwen",
                "namespace": "rl",
                "uid": "f-1",
                "generation": 1,
                "creationTimestamp": "2023-11-14T19:43:20Z",
            },
            "spec": least | (spec or {}),
            "status": status or {},
        }
    )


def world(spec: dict[str, Any] | None = None) -> World:
    """Return a fleet that was just created: no pod, no status."""
    made = fleet(spec)
    return World(fleet=made, workers=(), template_hash=pod_manifest.template_hash(made), moment=1e9)


def asking(seen: World, **spec: Any) -> World:
    """Return the same world after the user changed the spec."""
    changed = replace(
        seen.fleet,
        spec=seen.fleet.spec.model_copy(update=spec),
        generation=seen.fleet.generation + 1,
    )
    return replace(seen, fleet=changed, template_hash=pod_manifest.template_hash(changed))


def at_rest(seen: World, fates: dict[str, model_worker.Effect] | None = None) -> World:
    """Return the world once nothing is left to do."""
    *_, last = model_fleet.run(seen, fates or {})
    return last.world


def changed(seen: World, ordinal: int, **fields: Any) -> World:
    """Return the world with another report of one worker."""

    def other(worker: Worker) -> Worker:
        if worker.ordinal != ordinal or worker.report is None:
            return worker
        return replace(worker, report=worker.report.model_copy(update=fields))

    return replace(seen, workers=tuple(map(other, seen.workers)))


def readable(status: FleetStatus) -> FleetStatus:
    """Return the status if each message fits its place and begins with a count or an object."""
    assert len(status.summary) <= 80, status.summary
    assert "\n" not in status.summary
    for condition in status.conditions:
        assert 0 < len(condition.message) <= 1024, condition
        assert condition.message.split()[0].lower() not in _PRONOUNS, condition
    assert status.rollout is None or len(status.rollout.message) <= 1024
    assert all(len(worker.message or "") <= 256 for worker in status.workers)
    return status
