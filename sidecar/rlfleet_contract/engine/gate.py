"""The state of the gate, and the commands that the sidecar sends to it."""

from typing import Literal

from pydantic import Field

from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.schema import ContractReply, ContractRequest
from rlfleet_contract.worker.commands import Version

Fallback = Literal["open", "refuse"]
"""What a gate does after its deadline, without a word from its sidecar."""
GateAction = Literal[
    "open", "close", "try", "admit", "pass", "fail", "refuse", "drain", "era", "keep"
]


class GateState(ContractReply):
    """The gate as the engine extension reports it."""

    boot: str
    is_open: bool
    waiting: int
    """Requests that wait at the gate."""
    in_flight: int
    """Requests that compute, passed it and are not answered yet, without probes."""
    version: str | None = None
    """The version that the sidecar named last; None before its first command."""
    is_refusing: bool = False
    """Whether requests get 503 instead of waiting."""
    is_draining: bool = False
    """Whether the engine is about to end: its gate holds no request any longer."""
    has_deadline: bool = False
    """Whether this gate supports deadlines; an older extension does not."""
    is_expired: bool = False
    """Whether the deadline passed and the gate applied its fallback, until the next command."""
    has_unsalted: bool = False
    """Whether this boot got a request on a route without salts, so that its cache entries are
    shared by all."""
    loads: int = 0
    """How many requests that replace weights this boot got, also of self-tests; 0 from an older
    extension. What a sidecar recorded at another number is void."""

    @property
    def is_as_booted(self) -> bool:
        """Whether nothing has replaced the weights of the boot."""
        return self.loads == 0 and self.version in {None, BASE_VERSION}


class GateCommand(ContractRequest):
    """Open or close the gate of exactly one boot of the engine.

    ``try`` closes it over a version that is not proved, and withholds the answers to requests
    that passed before. ``pass`` sends them; ``fail`` ends them with an abort marker. The gate
    stays closed after both.
    ``admit`` lets requests pass during a trial, whose answers are withheld too: ``pass`` sends
    them and leaves the gate so, after ``fail`` they wait at the gate again. It has no effect
    without a trial.
    ``refuse`` closes it and rejects requests, waiting and new, until another command moves it.
    These leave the gate as it is: ``drain`` marks this boot as about to end, ``era`` hides
    earlier cache entries from requests without a salt, ``keep`` renews the deadline.
    """

    action: GateAction
    boot: str
    """Must be the engine's current boot: a restarted engine stays closed."""
    version: Version | None = None
    """The version that the engine computes with from now on; None leaves it as it is."""
    ttl_s: float | None = Field(default=None, gt=0, le=86400)
    """Of ``close``, ``try`` and ``keep``: seconds until the gate applies its fallback without
    a sidecar. A ``close`` without it ends the deadline."""
    fallback: Fallback | None = None
    """Of ``close`` and ``keep``; None leaves it. After a ``try`` it is refuse."""
