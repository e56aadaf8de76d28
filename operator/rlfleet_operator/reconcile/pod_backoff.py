"""How long a pod that has ended stands before it is replaced. Does no I/O.

A pod that a node refuses fails at once, and so does the next one. The driver of a fleet
remembers how many did, for as long as it drives. Moments are the steady clock's here.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from rlfleet_operator.clock import Wall
from rlfleet_operator.core.backoff import Backoff
from rlfleet_operator.core.model.world import REPLACE_S, RUNNING, Pod, Worker

_BACKOFF = Backoff(1.0, REPLACE_S, well_s=300.0)


@dataclass(slots=True)
class _Past:
    """What became of one worker's pods, as long as they are made of the same template."""

    template_hash: str
    failures: int = 0
    at: float = 0.0
    ended: str = ""
    """UID of the pod that the wait is for."""
    runs: str = ""
    """UID of the pod that was seen to run last."""
    runs_since: float = 0.0

    def see(self, pod: Pod, moment: float) -> None:
        if pod.terminating or pod.uid == self.ended:
            return
        if pod.has_ended:
            ran_s = moment - self.runs_since if pod.uid == self.runs else 0.0
            self.failures = _BACKOFF.failed(self.failures, ran_s)
            self.ended, self.at = pod.uid, moment + _BACKOFF.pause_s(self.failures)
        elif pod.phase == RUNNING and pod.uid != self.runs:
            self.runs, self.runs_since = pod.uid, moment


class Replacements:
    """When each worker's ended pod may be replaced."""

    def __init__(self) -> None:
        """Begin with no pod that has ended."""
        self._past: dict[str, _Past] = {}

    def see(self, pods: Mapping[str, Pod], names: Collection[str], moment: float) -> None:
        """Look at the pods of the workers of these names, and forget the others."""
        for name in self._past.keys() - set(names):
            del self._past[name]
        for name, pod in pods.items():
            past = self._past.get(name)
            if past is None or past.template_hash != pod.template_hash:
                self._past[name] = past = _Past(pod.template_hash)
            past.see(pod, moment)

    def dated(self, worker: Worker, wall: Wall) -> Worker:
        """Return the worker with the moment before which its ended pod is not replaced."""
        past = self._past.get(worker.name)
        is_it = past is not None and worker.pod is not None and worker.pod.uid == past.ended
        return (
            replace(worker, replace_at=wall.of(past.at)) if past is not None and is_it else worker
        )
