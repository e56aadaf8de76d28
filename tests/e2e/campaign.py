"""Kills at random moments of rollouts on the real cluster: python -m tests.e2e.campaign.

Each rollout is a patch of the spec under load; in the middle something dies. No person
helps: the fleet has to come to its target by itself (verdict.py says what else holds).
The same seed makes the same rollouts; the moment of a strike is as the machine is.
"""

import argparse
import json
import statistics
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import machine
from dev import steps, target
from dev.demo import stage
from dev.shell import Shell
from dev.steps import StepFailed, say
from tests.e2e import strikes, verdict
from tests.e2e.evidence import gathered
from tests.e2e.history import History
from tests.e2e.kills import AtStage
from tests.e2e.scenario import FLEET, Fleet, is_ready
from tests.e2e.strikes import Planned, Seen

NAMESPACE = "rlfleet-campaign"
ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results" / "campaign.json"
FAILED = ROOT / "faults" / "failed"
TTL_S = 120.0
SETTLED_S = 600.0
"""A container that died often is restarted after up to five minutes; then the engine boots."""
_USUAL_S = 8.0
"""How long a rollout takes until one was measured."""
_LOOK_S = 0.5


class Looks:
    """Looks at the cluster until all is well again, and remembers what it has seen on the way."""

    def __init__(self, shell: Shell, planned: Planned, before: Seen) -> None:
        self._shell, self._planned, self._before = shell, planned, before
        self.phases: set[str] = set()
        self.withdrawn: float | None = None
        self.struck: float | None = None
        self.now = before

    def until_settled(self) -> bool:
        """Wait until the target is served by all; False if that takes too long."""
        end, good = time.monotonic() + SETTLED_S, 0
        while time.monotonic() < end:
            try:
                self.now = strikes.looked(self._shell, FLEET)
            except (StepFailed, ValueError):
                # Nothing is seen while the API server hangs.
                good = 0
            else:
                self._note()
                good = good + 1 if self._is_settled() else 0
            if good > 1:
                return True
            time.sleep(_LOOK_S)
        return False

    def _note(self) -> None:
        rollout = self.now.status.get("rollout", {})
        if rollout.get("to") == self._planned.target:
            self.phases.add(rollout.get("phase", ""))
        pod = self.now.pods.get(f"{FLEET}-{self._planned.worker}")
        is_out = pod is None or not is_ready(pod)
        if self.struck is not None and self.withdrawn is None and is_out:
            self.withdrawn = time.monotonic()

    def _is_settled(self) -> bool:
        generation = self.now.fleet["metadata"]["generation"]
        is_synced = verdict.is_settled(
            self.now.status, generation, self._planned.target, strikes.WORKERS
        )
        is_back = strikes.is_replaced(self._planned, FLEET, self._before, self.now)
        pods = self.now.pods.values()
        return self.struck is not None and is_synced and is_back and all(map(is_ready, pods))


class Campaign:
    """A fleet, and what is known of it so far."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self.fleet = Fleet(shell)
        self._heads: verdict.Heads = {}
        self._usual_s = _USUAL_S

    def begin(self, version: str) -> None:
        """Bring the fleet to a version, and measure how long a rollout takes without a kill."""
        self._shell.kubectl("apply", "-f", str(stage.DEMO / "fleet.yaml"))
        self.fleet.wait_synced(900)
        took = []
        for step in ("step-1" if version == "step-3" else "step-3", version):
            self.fleet.reset(step, strikes.WORKERS)
            begun = time.monotonic()
            self.fleet.wait_synced(900)
            took.append(time.monotonic() - begun)
        self._usual_s = min(took)
        say(f"a rollout that nothing disturbs takes {self._usual_s:.1f} s")

    def run(self, planned: Planned) -> dict[str, Any]:
        """Make one rollout, strike in the middle, and judge."""
        before = strikes.looked(self._shell, FLEET)
        looks = Looks(self._shell, planned, before)
        with self.fleet.recorded(tokens=64, clients=2, rest_s=0.5) as histories:
            begun = time.monotonic()
            # Ready before the patch: a change may be over within a second.
            striker = self._striker(planned, before, looks)
            self.fleet.declare(planned.target, rollout={"pauseMode": planned.mode})
            is_settled = looks.until_settled()
            settled_s = time.monotonic() - begun
            striker.join()
        return self._judged(planned, looks, histories[0], settled_s if is_settled else None)

    def _striker(self, planned: Planned, before: Seen, looks: Looks) -> threading.Thread:
        strike = strikes.aimed(self._shell, planned, FLEET, before)

        def struck() -> None:
            looks.struck = time.monotonic()
            strike()

        if planned.stage:
            worker = f"{FLEET}-{planned.worker}"
            limit_s = 3 * self._usual_s
            return AtStage(self._shell, worker, planned.stage, struck, limit_s).thread
        timer = threading.Timer(planned.at * self._usual_s, struck)
        timer.daemon = True
        timer.start()
        return timer

    def _judged(
        self, planned: Planned, looks: Looks, history: History, settled_s: float | None
    ) -> dict[str, Any]:
        struck = looks.struck or 0.0
        run = verdict.Run(
            planned.source,
            planned.target,
            planned.mode,
            planned.victim,
            struck,
            looks.withdrawn,
            frozenset(looks.phases),
            looks.now.status,
            history,
            TTL_S,
            self._heads,
        )
        broken = verdict.violations(run)
        if settled_s is None:
            broken.insert(0, f"not at {planned.target} within {SETTLED_S:.0f} s")
        self._heads = verdict.learned(self._heads, history)
        slowest = max(history.replies, key=lambda reply: reply.ended - reply.sent)
        return {
            "number": planned.number,
            "from": planned.source,
            "to": planned.target,
            "mode": planned.mode,
            "victim": planned.victim,
            "worker": planned.worker,
            "moment": planned.moment,
            "seconds": None if settled_s is None else round(settled_s, 1),
            "requests": len(history.replies),
            "lost": len(history.lost),
            "longest_s": round(slowest.ended - slowest.sent, 1),
            "longest_sent_s": round(slowest.sent - struck, 1),
            "broken": broken,
        }


def main() -> None:
    """Run what is asked for; the exit status is 0 if all passed."""
    options = _options()
    if target.is_existing():
        raise StepFailed("processes are killed from the node: this needs the cluster of `make`")
    planned = strikes.plans(options.seed, options.first + options.rollouts - 1)
    shell = Shell(stage.cluster_and_images(), NAMESPACE, is_quiet=True)
    _clear(shell)
    stage.everything(shell)
    at, begun = datetime.now(UTC), time.monotonic()
    try:
        rows = _rows(shell, planned[options.first - 1 :], options.minutes)
    finally:
        _clear(shell)
    found = summary(rows, options.seed, at, time.monotonic() - begun)
    _write(found)
    say("seed {seed}: {rollouts} rollouts, {failed} failed; {text}".format(**_summary(found)))
    sys.exit(1 if found["failed"] else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.campaign", description=__doc__)
    parser.add_argument("--rollouts", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=1, help="begin with this one of the seed")
    parser.add_argument("--minutes", type=float, default=120, help="begin none after so long")
    return parser.parse_args()


def _clear(shell: Shell) -> None:
    shell.run("kubectl", "delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=300s")
    # A volume that was bound once binds to no other claim.
    shell.run("kubectl", "delete", "pv", f"checkpoints-{NAMESPACE}", "--ignore-not-found")


def _rows(shell: Shell, planned: list[Planned], minutes: float) -> list[dict[str, Any]]:
    campaign, rows = Campaign(shell), list[dict[str, Any]]()
    end = time.monotonic() + 60 * minutes
    campaign.begin(planned[0].source)
    for one in planned:
        if time.monotonic() > end:
            break
        row = campaign.run(one)
        rows.append(row)
        say(line(row))
        if row["broken"]:
            _keep(shell, campaign, row)
        if row["seconds"] is None:
            # What comes after would show nothing but this one again.
            break
    return rows


def line(row: dict[str, Any]) -> str:
    """Return a rollout's line."""
    taken = "never" if row["seconds"] is None else f"{row['seconds']:.0f} s"
    told = (
        "{number:>3} {from}->{to} {mode:<5} {victim:<14} {worker} at {moment:<7}"
        " {taken:>6} {requests:>4} requests {lost:>2} lost {longest_s:>5} s  {verdict}"
    )
    said = told.format(**row, taken=taken, verdict="ok" if not row["broken"] else "FAILED")
    return "\n".join([said, *(f"      {one}" for one in row["broken"])])


def _keep(shell: Shell, campaign: Campaign, row: dict[str, Any]) -> None:
    """Keep everything that helps to understand a failure: soon nothing of it is left."""
    FAILED.mkdir(parents=True, exist_ok=True)
    path = FAILED / f"campaign-{int(time.time())}.log"
    told = [line(row), gathered(shell), campaign.fleet.describe()]
    for pod in campaign.fleet.pods():
        for container in ("sidecar", "engine"):
            for flags in ((), ("--previous",)):
                words = ("logs", pod, "-c", container, "--tail=200", *flags)
                told += [f"--- {pod} {container} {flags}", shell.kubectl(*words, check=False)]
    words = ("kubectl", "-n", stage.OPERATOR_NAMESPACE, "logs", "--prefix", "--tail=300")
    told.append(shell.run(*words, "-l", "app.kubernetes.io/component=operator", check=False))
    path.write_text("\n".join(told))
    say(f"      see {path.relative_to(ROOT)}")


def summary(rows: list[dict[str, Any]], seed: int, at: datetime, seconds: float) -> dict[str, Any]:
    """Sum up a run as bench/results/campaign.json has it."""
    victims: dict[str, dict[str, Any]] = {}
    for name in strikes.VICTIMS:
        own = [row for row in rows if row["victim"] == name]
        took = [row["seconds"] for row in own if row["seconds"] is not None]
        victims[name] = {
            "rollouts": len(own),
            "failed": sum(bool(row["broken"]) for row in own),
            "median_s": round(statistics.median(took), 1) if took else None,
            "longest_s": max(took, default=None),
            "lost": sum(row["lost"] for row in own),
        }
    return {
        "date": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": machine.commit(),
        "seed": seed,
        "seconds": round(seconds),
        "rollouts": len(rows),
        "failed": sum(bool(row["broken"]) for row in rows),
        "requests": sum(row["requests"] for row in rows),
        "lost": sum(row["lost"] for row in rows),
        "victims": victims,
        "rows": rows,
    }


def _write(found: dict[str, Any]) -> None:
    """Put a run with those before it."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"runs": []}
    known["runs"].append(found)
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")


def _summary(found: dict[str, Any]) -> dict[str, Any]:
    parts = [
        f"{name} {one['rollouts']} (median {one['median_s']} s, {one['lost']} requests lost)"
        for name, one in found["victims"].items()
        if one["rollouts"]
    ]
    return found | {"text": ", ".join(parts)}


if __name__ == "__main__":
    steps.main(main)
