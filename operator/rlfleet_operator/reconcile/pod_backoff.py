"""The back-off of replacing pods that have ended. Does no I/O.

A pod that its node rejects fails at once, and so does the next one. So each driver counts a
worker's failed pods. Moments are those of the monotonic clock.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rlfleet_operator.clock import WallClock
from rlfleet_operator.core.backoff import Backoff
from rlfleet_operator.core.model.worker_pod import Pod
from rlfleet_operator.core.model.world import REPLACE_S, RUNNING

_BACKOFF = Backoff(1.0, REPLACE_S, well_s=300.0)


@dataclass(slots=True)
class _Past:
    """The ended pods of one worker since the last change of the pod template."""

    template_hash: str
    failures: int = 0
    at: float = 0.0
    ended: str = ""
    """UID of the ended pod to replace."""
    runs: str = ""
    """UID of the last pod that ran."""
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


class PodBackoff:
    """The earliest moment to replace each worker's ended pod."""

    def __init__(self) -> None:
        """Start without ended pods."""
        self._past: dict[str, _Past] = {}

    def see(self, pods: Mapping[str, Pod], names: Collection[str], moment: float) -> None:
        """Record the pods of these workers, and forget other workers."""
        for name in self._past.keys() - set(names):
            del self._past[name]
        for name, pod in pods.items():
            past = self._past.get(name)
            if past is None or past.template_hash != pod.template_hash:
                self._past[name] = past = _Past(pod.template_hash)
            past.see(pod, moment)

    def replace_at(self, name: str, pod: Pod | None, wall: WallClock) -> float:
        """Return the wall-clock time from which a worker's ended pod is replaced; 0 without one."""
        past = self._past.get(name)
        is_it = past is not None and pod is not None and pod.uid == past.ended
        return wall.of(past.at) if past is not None and is_it else 0.0
