"""The tree and two ways through it, as Markdown for docs/architecture.md; nothing acts here.

The tree is every package with the first sentence of its docstring, and its modules. A way is a
list of functions, each of which mentions the next: a way that the code has left is an error.
"""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
BEGIN = "<!-- drawn by dev/docs/tree.py: begin -->"
END = "<!-- drawn by dev/docs/tree.py: end -->"
_PACKAGES = (
    "operator/rlfleet_operator",
    "sidecar/rlfleet_contract",
    "sidecar/rlfleet_sidecar",
    "sidecar/rlfleet_engine",
)
_OPERATOR, _, _SIDECAR, _ENGINE = _PACKAGES


class Hop(NamedTuple):
    """One function of a way."""

    file: str
    function: str
    does: str
    mentions: str
    """What stands in its code and leads to the next hop, or does what the last one is for."""


PATCH = (
    Hop(f"{_OPERATOR}/kopf_app.py", "_registry", "kopf receives the new spec", "_fleets.deliver"),
    Hop(f"{_OPERATOR}/reconcile/supervisor.py", "deliver", "wakes the fleet's loop", "_drive"),
    Hop(
        f"{_OPERATOR}/reconcile/reconciler.py",
        "_decide",
        "plans the next step from observations",
        "plan(world)",
    ),
    Hop(f"{_OPERATOR}/core/plan.py", "plan", "decides which commands are due", "Plan("),
    Hop(
        f"{_OPERATOR}/reconcile/reconciler.py",
        "_act",
        "sends them; those of a recorded rollout beside a write of status, for 3 s at most",
        "_contacts.command",
    ),
    Hop(
        f"{_OPERATOR}/workers/pool.py",
        "_answer_of",
        "to the worker's sidecar, with this loop's fence",
        "client.command",
    ),
    Hop(
        f"{_SIDECAR}/change/fencing.py",
        "carry_out",
        "checks the fence: owner and repeats",
        "_answer(request)",
    ),
    Hop(
        f"{_SIDECAR}/change/executor.py",
        "_carry_out",
        "runs the change: pause, flush, reload, verify, resume",
        "self._act[",
    ),
    Hop(
        f"{_SIDECAR}/change/steps.py",
        "reload",
        "loads the checked copy, and records that it began",
        "_engine.reload",
    ),
    Hop(
        f"{_ENGINE}/worker.py",
        "rlfleet_reload",
        "reads and digests each tensor for vLLM's own loader",
        "reload(",
    ),
)
"""From ``kubectl patch`` to vLLM's memory."""
REQUEST = (
    Hop(f"{_ENGINE}/safety.py", "__call__", "receives a request before vLLM", "_answer("),
    Hop(f"{_ENGINE}/safety.py", "_answer", "passes it to the guard, then to the gate", "_serve("),
    Hop(
        f"{_ENGINE}/gate/network_guard.py",
        "route_of",
        "decides by the raw path whether it is exposed",
        "Route.",
    ),
    Hop(
        f"{_ENGINE}/reply/version_demand.py",
        "demand_of",
        "reads which version the client requests",
        "Demand(",
    ),
    Hop(
        f"{_ENGINE}/safety.py",
        "_serve",
        "passes it at once if the gate is open and its body is not needed",
        "self._hold(",
    ),
    Hop(
        f"{_ENGINE}/gate/held_request.py",
        "until_open",
        "waits while the gate is closed",
        "gate.opened",
    ),
    Hop(
        f"{_ENGINE}/rewrite/shaping.py",
        "shaped",
        "translates a shape that vLLM lacks",
        "turn",
    ),
    Hop(f"{_ENGINE}/safety.py", "_pass", "passes it to vLLM", "await app("),
    Hop(
        f"{_ENGINE}/reply/reply.py",
        "__call__",
        "adds the version that answered, or the abort marker",
        "message",
    ),
)
"""From a sampler to vLLM and back."""
COMMAND = (
    Hop(f"{_SIDECAR}/http/admin.py", "carry_out", "parses the command", "worker.carry_out"),
    Hop(
        f"{_SIDECAR}/change/fencing.py",
        "carry_out",
        "checks the fence, and begins a task that outlives its caller",
        "_answer(request)",
    ),
    Hop(
        f"{_SIDECAR}/change/fencing.py",
        "_answer",
        "records the answer",
        "_begun(request)",
    ),
    Hop(
        f"{_SIDECAR}/change/executor.py",
        "carry_out",
        "runs one change at a time",
        "flight.join",
    ),
    Hop(
        f"{_SIDECAR}/change/single_flight.py",
        "join",
        "begins it, or joins a repeat",
        "super().join",
    ),
    Hop(
        f"{_SIDECAR}/change/executor.py",
        "_carry_out",
        "selects the due steps, and times each",
        "self._act[",
    ),
    Hop(f"{_SIDECAR}/change/steps.py", "reload", "acts on the engine", "_engine.reload"),
)
"""From a route of the sidecar to the act."""


def drawn_into(page: str) -> str:
    """Return the page with the present tree and ways between the two comments."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{drawn()}\n\n{END}{tail}"


def drawn() -> str:
    """Return the tree and the ways as Markdown."""
    return "\n".join(
        [
            "### A patched `spec.weightVersion`",
            "",
            *way(PATCH),
            "",
            "### A request",
            "",
            *way(REQUEST),
            "",
            "### A command inside the sidecar",
            "",
            *way(COMMAND),
            "",
            "### Folders",
            "",
            *_tree(),
        ]
    ).rstrip()


def way(hops: Sequence[Hop]) -> Iterator[str]:
    """Yield one line a hop; raises ValueError for one that the code has left."""
    for number, hop in enumerate(hops, 1):
        if hop.mentions not in _source(hop):
            raise ValueError(
                f"{hop.file}: {hop.function} no longer mentions {hop.mentions}; correct the hop"
                " in dev/docs/tree.py"
            )
        yield f"{number}. `{hop.file}`, `{hop.function}`: {hop.does}"


def _source(hop: Hop) -> str:
    text = (ROOT / hop.file).read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == hop.function:
            return ast.get_source_segment(text, node) or ""
    raise ValueError(
        f"{hop.file} has no function {hop.function}: correct the hop in dev/docs/tree.py"
    )


def _tree() -> Iterator[str]:
    for package in _PACKAGES:
        yield f"#### {package}"
        yield ""
        yield "| folder | what it is | modules |"
        yield "|---|---|---|"
        for init in sorted((ROOT / package).rglob("__init__.py")):
            folder = init.parent
            name = folder.relative_to(ROOT / package).as_posix()
            modules = sorted(p.stem for p in folder.glob("*.py") if p.name != "__init__.py")
            yield f"| `{name}` | {_sentence(init)} | {', '.join(modules)} |"
        yield ""


def _sentence(init: Path) -> str:
    told = ast.get_docstring(ast.parse(init.read_text())) or ""
    return " ".join(told.split("\n\n")[0].split())
