"""Examine tiny models of many architectures on real vLLM: python3 -m dev.zoo [NAME ...].

Runs the zoo package in a pod of the worker's image and prints a line for each model. All
models together are written to bench/results (zoo.json; zoo-like-gpu.json with --like-gpu), from
which docs/reference/models.md is generated; named ones with --write only. What `python3 -m zoo`
printed on a machine with a GPU is kept by --keep FILE, in zoo-gpu.json.
"""

import argparse
import json
import string
import sys
from pathlib import Path
from typing import Any

from dev import steps
from dev.demo import stage
from dev.docs.models_page import LIKE_GPU, ON_GPU, RESULTS
from dev.images import names
from dev.shell import Shell
from dev.steps import StepFailed, say

ZOO = Path(__file__).resolve().parent.parent / "zoo"
NAMESPACE = "rlfleet-zoo"
_HOURS = 2


def main() -> None:
    """Examine the named models, or all."""
    parser = argparse.ArgumentParser(prog="python -m dev.zoo", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--like-gpu", action="store_true", help="reload as on a GPU")
    ways.add_argument("--packed", action="store_true", help="pack all linear layers; only print")
    parser.add_argument("--write", action="store_true", help="write the rows of named models too")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="only keep a GPU's rows")
    options = parser.parse_args()
    if options.keep is not None:
        rows = [json.loads(line) for line in options.keep.read_text().splitlines()]
        ON_GPU.write_text(json.dumps(merged(json.loads(ON_GPU.read_text()), rows), indent=1) + "\n")
        return
    chosen, results = options.names, LIKE_GPU if options.like_gpu else RESULTS
    way = "--like-gpu" if options.like_gpu else "--packed" if options.packed else None
    shell = Shell(stage.cluster_and_images(), NAMESPACE, is_quiet=True)
    rows = examine(shell, chosen, way)
    if (options.write or not chosen) and not options.packed:
        written = merged(json.loads(results.read_text()), rows) if chosen else rows
        results.write_text(json.dumps(written, indent=1) + "\n")
        say(f"{len(rows)} models written to {results.name}; `make generate` writes the page")
    failed = [row["model"] for row in rows if not row["passed"]]
    say(f"{len(rows) - len(failed)} of {len(rows)} models passed")
    if failed and (chosen or options.packed):
        raise StepFailed(f"did not pass: {', '.join(failed)}")


def merged(known: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the known rows with these in the place of their models', and the new ones after."""
    new = {row["model"]: row for row in rows}
    return [new.pop(row["model"], row) for row in known] + list(new.values())


def examine(shell: Shell, chosen: list[str], way: str | None = None) -> list[dict[str, Any]]:
    """Run the pod and return a row for each model; ``way`` is an option of the zoo's."""
    words = [way, *chosen] if way else chosen
    stage.namespace(shell)
    files = [f"--from-file={path}" for path in sorted(ZOO.iterdir()) if path.is_file()]
    made = shell.kubectl("create", "configmap", "zoo", *files, "--dry-run=client", "-o=yaml")
    shell.kubectl("apply", "-f", "-", stdin=made)
    shell.kubectl("delete", "job", "zoo", "--ignore-not-found")
    text = string.Template((ZOO / "pod.yaml").read_text())
    filled = text.substitute(WORKER_IMAGE=names.recorded()["worker"], WORDS=json.dumps(words))
    shell.kubectl("apply", "-f", "-", stdin=filled)
    try:
        shell.kubectl("wait", "--for=jsonpath={.status.active}=1", "job/zoo", "--timeout=60s")
        shell.kubectl(
            "wait", "--for=condition=Ready", "pod", "-l", "job-name=zoo", "--timeout=120s"
        )
        return _rows(shell)
    finally:
        shell.run("kubectl", "delete", "namespace", shell.namespace, "--wait=false")


def _rows(shell: Shell) -> list[dict[str, Any]]:
    rows = []
    with shell.start("logs", "-f", "job/zoo") as logs:
        for line in logs.stdout or ():
            if not line.startswith('{"model"'):
                continue
            row = json.loads(line)
            rows.append(row)
            said = "passed" if row["passed"] else row.get("error") or "; ".join(row["wrong"])
            say(f"{row['model']:<14} {row['seconds']:>6.1f} s  {said}")
    if not rows:
        raise StepFailed("the zoo's pod printed no result; read kubectl logs job/zoo")
    return rows


if __name__ == "__main__":
    steps.main(main)
    sys.stdout.flush()
