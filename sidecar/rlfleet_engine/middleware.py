"""The entry point in vLLM's API server: guard and gate, with request rewriting behind them.

vLLM loads it by ``--middleware rlfleet_engine.middleware.Extension``. Name and parameters must
not change, because operators of other releases use them. ``rlfleet_engine.safety.Safety`` is the
same without rewriting.
"""

from collections.abc import Callable, Mapping

from rlfleet_engine.control import end_process
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import Application
from rlfleet_engine.rewrite.rewrite import Turn
from rlfleet_engine.rewrite.shapes.routes import TURNS
from rlfleet_engine.rewrite.shaping import Shaping
from rlfleet_engine.safety import Safety


class Extension(Safety):
    """A pure ASGI middleware, one instance in each API server process."""

    def __init__(
        self,
        app: Application,
        gate: Gate | None = None,
        end: Callable[[], None] = end_process,
        max_body_bytes: int | None = None,
        turns: Mapping[str, Turn] = TURNS,
    ) -> None:
        super().__init__(app, gate, end, max_body_bytes, Shaping(app, turns))
