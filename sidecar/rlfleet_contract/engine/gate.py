"""What sidecar and engine extension say to one another of the gate."""

from typing import Literal

from pydantic import Field

from rlfleet_contract.schema import ContractReply, ContractRequest
from rlfleet_contract.worker.commands import Version

Fallback = Literal["open", "refuse"]
"""What a gate does when its sidecar is silent for too long."""


class GateState(ContractReply):
    """What the engine extension says of its gate."""

    boot: str
    is_open: bool
    waiting: int
    """Requests held at the gate."""
    in_flight: int
    """Requests that passed it and have not been answered, probes not counted."""
    version: str | None = None
    """What the engine computes with, as the sidecar said last; None before its first word."""
    is_refusing: bool = False
    """Whether requests are told to go elsewhere instead of waiting."""
    is_draining: bool = False
    """Whether the engine is to end: nobody shall be held at its gate any more."""
    has_deadline: bool = False
    """Whether this gate takes a deadline; an older extension does not."""
    is_expired: bool = False
    """Whether its deadline passed and the gate did its fallback; the next move ends that."""
    has_unsalted: bool = False
    """Whether this boot was sent what no salt separates in its caches: a request on a route
    that takes none."""


class GateCommand(ContractRequest):
    """Open or close the gate of exactly one boot of the engine.

    ``try`` closes it over a version that is not proved: what the engine answers meanwhile
    to requests that passed the gate before is withheld. ``pass`` and ``fail`` end that, the
    gate stays closed: what was withheld goes out, or ends with the marker of an abort.
    ``refuse`` closes it and tells those who wait, and who come, to go elsewhere; any other
    move ends that.
    ``drain`` moves nothing: it tells the sidecar that this boot is to end. ``era`` does
    neither: requests without a salt find nothing from then on of what was computed before.
    ``keep`` moves nothing either: it renews the deadline, if there is one.
    """

    action: Literal["open", "close", "try", "pass", "fail", "refuse", "drain", "era", "keep"]
    boot: str
    """Must be the engine's present boot: an engine that came anew stays closed."""
    version: Version | None = None
    """What the engine computes with from now on; None leaves what was said before."""
    ttl_s: float | None = Field(default=None, gt=0, le=86400)
    """Of ``close``, ``try`` and ``keep``: the deadline from now on, after which the gate does
    its fallback without a sidecar. A ``close`` without it ends the deadline."""
    fallback: Fallback | None = None
    """Of ``close`` and ``keep``; None leaves it. After a ``try`` it is refuse."""
