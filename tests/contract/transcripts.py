"""What trainers send, in their order, and what they must be answered.

The sequences are those of the clients' own code; a wrong turn is a sequence of its own.
In paths and bodies ``{weights}`` is the directory of the versions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.contract.subject import Subject
from tests.fakes.behaviour import Behaviour
from tests.fakes.checkpoints import write_version
from tests.fakes.worker import Worker

ANY = object()
"""A field that must be there, whatever it says."""


@dataclass(frozen=True)
class Call:
    """One request and its answer."""

    request: str
    """Method and path with query."""
    status: int = 200
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What the answer's body must hold, among other things; a text if it must hold that."""
    body: Any = None


@dataclass(frozen=True)
class Engine:
    """From here on the engine departs from an honest one like this."""

    behaviour: Behaviour = field(default_factory=Behaviour)


@dataclass(frozen=True)
class Touch:
    """prime-rl makes the directory of a step, and a file in it."""

    path: str


@dataclass(frozen=True)
class Write:
    """The trainer writes a whole version."""

    version: str


Step = Call | Engine | Touch | Write


async def play(steps: Sequence[Step], subject: Subject, fake: Worker | None = None) -> None:
    """Play a transcript from its beginning to its end."""
    for step in steps:
        match step:
            case Call():
                await send(step, subject)
            case Engine():
                assert fake is not None
                fake.engine.behaviour = step.behaviour
            case Touch():
                _touch(Path(placed(step.path, subject)))
            case Write():
                write_version(Path(subject.weights), step.version, seed=9)


def _touch(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.touch()


async def send(call: Call, subject: Subject) -> httpx.Response:
    """Send one request and hold the answer to what it must be."""
    method, _, path = call.request.partition(" ")
    reply = await subject.admin.request(
        method, placed(path, subject), json=placed(call.body, subject)
    )
    told = f"{call.request}: {reply.status_code} {reply.text}"
    assert reply.status_code == call.status, told
    found = reply.json() if call.fields else {}
    for name, expected in call.fields.items():
        assert name in found, told
        if expected is not ANY:
            is_part = isinstance(expected, str) and name == "message"
            assert expected in found[name] if is_part else expected == found[name], told
    return reply


def placed(value: Any, subject: Subject) -> Any:
    """Put the directory of the versions in its place."""
    if isinstance(value, str):
        return value.replace("{weights}", subject.weights)
    if isinstance(value, dict):
        return {key: placed(inner, subject) for key, inner in value.items()}
    if isinstance(value, list):
        return [placed(inner, subject) for inner in value]
    return value


PAUSE = Call("POST /pause?mode=keep&clear_cache=false", fields={"status": "paused"})
RESUME = Call("POST /resume", fields={"status": "resumed"})
HELD = Call("GET /is_paused", fields={"is_paused": True})
RUNS = Call("GET /is_paused", fields={"is_paused": False})


def update(version: str, status: int = 200, **fields: Any) -> Call:
    """Make prime-rl's update to a version."""
    good = {"status": "ok", "weight_version": version} if status == 200 else {"status": "error"}
    body = {"weight_dir": f"{{weights}}/{version}"}
    return Call("POST /update_weights", status, good | fields, body)


def resume_refused(code: str = "WrongStage", message: str = "the last update failed") -> Call:
    """Make the resume of a trainer's ``finally`` after an update that failed."""
    fields = {"status": "error", "code": code, "message": message}
    return Call("POST /resume", 409, fields)


def serves(version: str | None) -> Call:
    """Make the question which version is proved."""
    return Call("GET /weight_info", fields={"weight_version": version})


def dynamo(name: str, status: int = 200, body: Any = None, **fields: Any) -> Call:
    """Make one of Dynamo's calls; its body says whether it went well, and so does the code."""
    good = {"status": "ok"} if status == 200 else {"status": "error"}
    return Call(f"POST /engine/{name}", status, good | fields, body or {})
