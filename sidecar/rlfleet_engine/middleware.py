"""The entry point of the extension in vLLM's API server: safety, with rewriting chained to it.

Named to vLLM by ``--middleware rlfleet_engine.middleware.Extension``. It must stay true that
this name and these parameters remain: pods of another release's operator name them.
``rlfleet_engine.safety.Safety`` serves in its place where no request is to be rewritten.
"""

from collections.abc import Callable, Mapping

from rlfleet_engine.asgi import Scope, Send
from rlfleet_engine.control import end_process
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import Application, Receive
from rlfleet_engine.rewrite.rewrite import Turn
from rlfleet_engine.rewrite.shapes.routes import TURNS
from rlfleet_engine.rewrite.shapes.shaping import Shaping
from rlfleet_engine.safety import Safety


class Extension:
    """A plain ASGI middleware; vLLM makes one in each API server process."""

    def __init__(
        self,
        app: Application,
        gate: Gate | None = None,
        end: Callable[[], None] = end_process,
        max_body_bytes: int | None = None,
        turns: Mapping[str, Turn] = TURNS,
    ) -> None:
        self._safety = Safety(app, gate, end, max_body_bytes, Shaping(app, turns))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand one request to safety, which has it rewritten when it has let it pass."""
        await self._safety(scope, receive, send)
