"""What the extension in the engine costs samplers: a worker and plain vLLM in turns.

The worker belongs to a fleet, so each request passes guard, gate and version headers. Plain vLLM
has the same image, flags and weights.
"""

import json
from typing import Any

from bench import baseline, cluster, cores
from bench.comparison import Block, Cell, cells, latency_ratio, throughput_ratio
from bench.findings import Part, paragraphs, rounded, summary
from bench.fleet import Fleet
from dev.shell import Shell
from dev.steps import say

_NOTES = """
A fleet of one worker and a Deployment of one pod with the same image, flags and weights (tiny
model, real vLLM on CPU), without --middleware, --worker-extension-cls and sidecar. Both run all
the time and are asked by turns, ABBABAAB, through their Services, by clients that send the
next request when the last is answered. What sidecar and operator cost at rest falls on both.

vLLM binds both engines' workers to one core; their API servers, their engine cores and the
clients are bound to the others (bench/cores.py says why).

Each block sends the same number of requests, 1.5 s of them or one round, after a rest of 1.2 s,
in which the other engine's worker stops to spin, and a round that is not counted; a route with
a number of clients has 25 s, or eight blocks. A request asks for
16 tokens with their log probabilities and, on chat, their ids; /inference/v1/generate has a
cache_salt, as prime-rl sends it; /tokenize has messages.

extension_throughput_ratio: requests per second with the extension over those without it, of
two neighbouring blocks; median of a cell's pairs, then the geometric mean over all cells.
extension_latency_p50_ratio: the same of each block's median time until a request's last byte.

The tiny model makes a request as short as it gets, and so the extension's part of it as large.
"an engine against itself" is the ratio of two blocks of the same engine that followed each
other: what lies within its spread is the machine's noise.
"""


def measure(*, flags: tuple[str, ...], as_it_is: bool) -> Part:
    """Ask both engines; ``flags`` go to the clients."""
    model = cluster.TINY
    with cluster.ready(as_it_is=as_it_is) as shell:
        cluster.write_checkpoints(shell, model)
        cluster.run_script(shell, "bootable.py", "/data", model.name, *model.versions)
        baseline.apply(shell, model, model.versions[0], replicas=1)
        shell.kubectl("apply", "-f", "-", stdin=json.dumps(baseline.service()))
        fleet = Fleet(shell, model)
        fleet.resize(1)
        baseline.complete(shell)
        return part(_asked(shell, model, flags))


def _asked(shell: Shell, model: cluster.Model, flags: tuple[str, ...]) -> list[Cell]:
    left = ",".join(map(str, sorted(cores.part())))
    say(f"asking both engines by turns; all but their workers on core {left or 'any'}")
    urls = [f"http://{service}:8000" for service in (baseline.NAME, model.name)]
    words = ("exec", "client", "--", "python3", "/demo/turns.py", *urls, model.name, *flags)
    if left:
        words += ("--cores", left)
    return cells(blocks(shell.kubectl(*words)))


def blocks(told: str) -> list[Block]:
    """Read what the clients print."""
    return [Block(**json.loads(line)) for line in told.splitlines() if line.startswith("{")]


def part(found: list[Cell]) -> Part:
    """Make the figures."""
    rows = [cell.row() for cell in found]
    figures = {
        "extension_throughput_ratio": rounded(throughput_ratio(found)),
        "extension_latency_p50_ratio": rounded(latency_ratio(found, 0.5)),
    }
    say("\n".join(f"{r['route']}, {r['clients']}: {r['ratio']}" for r in rows))
    return Part(
        figures=figures,
        detail={
            "tables": {
                "By route and clients": rows,
                "By route": _by_route(found),
                "An engine against itself": _noise(found),
            },
            "blocks": [
                {
                    "route": block.route,
                    "clients": block.clients,
                    "is_extended": block.is_extended,
                    "seconds": block.seconds,
                    "requests_per_s": rounded(block.per_s),
                }
                for cell in found
                for block in cell.blocks
            ],
        },
        notes=paragraphs(_NOTES),
    )


def _by_route(found: list[Cell]) -> list[dict[str, Any]]:
    routes = dict.fromkeys(cell.route for cell in found)
    own = {route: [cell for cell in found if cell.route == route] for route in routes}
    return [
        {
            "route": route,
            "throughput ratio": f"{throughput_ratio(of):.3f}",
            "latency p50 ratio": f"{latency_ratio(of, 0.5):.3f}",
            "latency p99 ratio": f"{latency_ratio(of, 0.99):.3f}",
        }
        for route, of in own.items()
    ]


def _noise(found: list[Cell]) -> list[dict[str, Any]]:
    own = [ratio for cell in found for ratio in cell.own_ratios()]
    return [summary(own)] if own else []
