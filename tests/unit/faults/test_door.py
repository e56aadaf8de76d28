"""Which requests to an engine are steps of a change, and may be struck."""

import json
from typing import Any

from faults.door import Door
from faults.ledger import Ledger
from rlfleet_contract import paths


class Engine:
    """Answers nothing, and is not killed here."""

    reloads = 0

    async def lose_sidecar(self) -> None:
        raise AssertionError

    async def lose_engine(self) -> None:
        raise AssertionError

    async def crash(self) -> None:
        raise AssertionError

    async def answer(self, _scope: Any, _receive: Any, _send: Any) -> None:
        return


async def asked(door: Door, method: str, path: str, body: dict[str, str] | None = None) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(body or {}).encode()}

    async def send(_message: Any) -> None:
        raise AssertionError

    await door({"type": "http", "method": method, "path": path}, receive, send)


async def test_what_is_asked_of_an_open_engine_ever_so_often_is_no_step() -> None:
    ledger, engine = Ledger(None), Engine()
    ledger.open()
    door = Door(engine.answer, "w1", ledger, engine.crash, "breaking")
    door.worker = engine
    for action in ("close", "open"):
        await asked(door, "POST", paths.GATE_PATH, {"action": action})
        for _look in range(3):
            await asked(door, "GET", "/is_paused")
            await asked(door, "GET", paths.GATE_PATH)

    assert [place.key for place in ledger.places] == ["close w1", "is_paused w1", "open w1"]
