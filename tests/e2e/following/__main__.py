"""A trainer publishes deltas into an S3 store, and a fleet follows: python -m tests.e2e.following.

The trainer and the objects are those of examples/trainer. Clients send requests all the time.
Afterwards plain vLLM computes, from what the trainer handed to its publisher, the log
probabilities that each version must give, and each reply is compared with them.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from bench import machine
from dev import steps
from dev.demo import stage
from dev.images import names
from dev.s3 import server
from dev.shell import Shell
from dev.steps import StepFailed, say
from tests.e2e.evidence import gathered
from tests.e2e.following import cluster, matching, timeline, verdict
from tests.e2e.following.arrange import DATA, Plan
from tests.e2e.following.cluster import KEPT, Streams
from tests.e2e.following.observe import Clients
from tests.e2e.following.timeline import Published
from tests.e2e.following.verdict import Seen

NAMESPACE = "rlfleet-following"
RESULTS = stage.ROOT / "bench" / "results" / "following.json"
BASE, BOOT = "base", "boot"
_LOOK_S = 2.0
_STATE_S = 6.0
_SERVED_S = 300.0
_LINGER_S = 4.0
_SLACK_S = 900.0
_REFERENCE_S, _VERSION_S = 600.0, 60.0


def main() -> None:
    """Run the demo as the arguments say; exit with 1 if anything is not as it must be."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.following", description=__doc__)
    parser.add_argument("--steps", type=int, default=100, help="versions that are published")
    parser.add_argument("--every", type=float, default=20, help="seconds from one to the next")
    parser.add_argument("--keep", type=int, default=5, help="newest versions that retention keeps")
    options = parser.parse_args()
    steps.run(server.build_steps())
    shell = Shell(stage.cluster_and_images(), NAMESPACE, is_quiet=True)
    plan = Plan(options.steps, options.every, options.keep, names.recorded()["worker"])
    begun = time.monotonic()
    try:
        found = verdict.summary(seen_of(shell, plan))
    except StepFailed:
        say(gathered(shell))
        raise
    _write(plan, found, time.monotonic() - begun)
    say("")
    for line in verdict.lines(found):
        say(line)
    if found["violations"]:
        say(gathered(shell))
        sys.exit("".join(f"\nfailed: {one}" for one in found["violations"]))
    say("ok: the fleet followed its trainer")
    cluster.remove(shell)


def seen_of(shell: Shell, plan: Plan) -> Seen:
    """Run all of it, and return what was seen."""
    say("a namespace, a volume with the model, the operator, an S3 server")
    cluster.fresh(shell)
    objects = cluster.objects(shell, plan)
    say("a fleet of two workers, which look into an empty bucket")
    fleet = cluster.start_fleet(shell, objects)
    before = fleet.identities()
    clients = Clients(shell, cluster.url(shell))
    streams = Streams(shell, sorted(before))
    with streams.running():
        say(f"the trainer: {plan.steps} versions, one each {plan.every_s:g} s")
        cluster.apply(shell, [one for one in objects if one["kind"] == "Job"])
        _follow(shell, plan, streams, clients)
        clients.end()
    published = timeline.published(streams.trainer.lines)
    spans = [one for record in clients.records for one in _spans(record)]
    reference = _reference(shell, clients.prompts, spans, published)
    return Seen(
        steps=plan.steps,
        every_s=plan.every_s,
        keep=plan.keep,
        published=published,
        looks=timeline.looks(streams.status.lines),
        records=clients.records,
        reloaded_apart=_apart(reference, max(published)),
        matches=matching.matches(
            spans,
            matching.samples(spans),
            {version: rows for version, rows in reference.items() if version != BOOT},
        ),
        caches={name: timeline.disks(one.lines) for name, one in streams.caches.items()},
        bucket=timeline.disks(streams.bucket.lines),
        is_undisturbed=fleet.identities() == before,
    )


def _spans(record: Mapping[str, Any]) -> list[matching.Span]:
    return [] if "error" in record else list(matching.spans(record))


def _follow(shell: Shell, plan: Plan, streams: Streams, clients: Clients) -> None:
    """Print how the fleet follows, until it serves the last version."""
    begun, looked, printed = time.monotonic(), 0.0, 0
    limit, has_ended = begun + 2 * plan.steps * plan.every_s + _SLACK_S, False
    while True:
        time.sleep(_LOOK_S)
        now = time.monotonic()
        published = timeline.published(list(streams.trainer.lines))
        since = timeline.served(timeline.looks(list(streams.status.lines)), published)
        for version in list(published)[printed:]:
            say(_progress(now - begun, published[version], max(since, default=BASE), clients))
        printed = len(published)
        if not clients.are_running:
            raise StepFailed(f"the clients ended after {len(clients.records)} requests")
        if has_ended and len(published) >= plan.steps and max(published) in since:
            # The last version's replies come too.
            time.sleep(_LINGER_S)
            return
        if now > limit:
            raise StepFailed("the fleet did not serve the last version in time")
        if now - looked > _STATE_S and not has_ended:
            looked, has_ended = now, _has_ended(shell, streams)
            limit = now + _SERVED_S if has_ended else limit


def _has_ended(shell: Shell, streams: Streams) -> bool:
    has_ended, has_failed = cluster.trainer_state(shell)
    if has_failed:
        raise StepFailed(
            "the trainer failed:\n" + "".join(t for _, t in streams.trainer.lines[-9:])
        )
    return has_ended


def _progress(after_s: float, one: Published, served: str, clients: Clients) -> str:
    lost = sum(not matching.is_whole(record) for record in list(clients.records))
    kind = "full " if one.is_full else "delta"
    return (
        f"[{after_s:5.0f} s] published {one.version} {kind} {one.nbytes:>7} bytes; served {served};"
        f" {len(clients.records)} requests, {lost} lost"
    )


def _reference(
    shell: Shell,
    prompts: list[list[int]],
    spans: list[matching.Span],
    published: Mapping[str, Published],
) -> dict[str, list[list[float]]]:
    """Compute the log probabilities of all that was replied, under each version."""
    versions = {BASE: f"{DATA}/models/qwen/model.safetensors"}
    versions |= {version: f"{KEPT}/{version}.safetensors" for version in sorted(published)}
    samples = [[prompts[prompt], list(reply)] for prompt, reply in matching.samples(spans)]
    say(f"plain vLLM computes {len(samples)} different replies under {len(versions)} versions")
    limit = _REFERENCE_S + _VERSION_S * len(versions)
    found: dict[str, list[list[float]]] = {}
    for row in cluster.reference(shell, versions, samples, limit):
        found[row["version"]] = row["logprobs"]
        say(f"[{len(found):>3}/{len(versions) + 1}] {row['version']} {row['seconds']} s")
    if set(found) != {BOOT, *versions}:
        raise StepFailed(f"the reference has {len(found)} of {len(versions) + 1} versions")
    return found


def _apart(reference: Mapping[str, list[list[float]]], last: str) -> float:
    pairs = zip(reference[BOOT], reference[last], strict=True)
    return max((matching.far(one, other) for one, other in pairs), default=float("inf"))


def _write(plan: Plan, found: dict[str, Any], seconds: float) -> None:
    """Keep the figures of the newest run of each length."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    about = {
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": machine.commit(),
        "seconds": round(seconds),
        "machine": machine.description(),
    }
    known[f"{plan.steps} steps, one each {plan.every_s:g} s"] = about | found
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    steps.main(main)
