"""Access to the fleet API of one fleet: its token.

It must stay true that a token which is missing, empty or cannot be read lets nobody in,
that it is compared in constant time, and that a fleet which does not exist is answered as
a wrong token is.
"""

import hmac
import time
from collections.abc import Awaitable, Callable
from hashlib import sha256

from rlfleet_contract.auth import token_of
from rlfleet_contract.single_flight import SingleFlight
from rlfleet_operator.core.trainer.models import Fault, Refusal
from rlfleet_operator.errors import Refused
from rlfleet_operator.kube.client import Json

_KNOWN_S = 5.0
"""How long a token is taken for the present one: strangers must not make us read Secrets."""
_ABSENT_S = 1.0


class Access:
    """Knows the tokens of fleets, for a while."""

    def __init__(self, read: Callable[[Json], Awaitable[str]], kept_s: float = _KNOWN_S) -> None:
        """Begin with none; ``read`` tells a fleet's token and raises Refused if it has none.

        A token counts for ``kept_s`` seconds before it is read again.
        """
        self._read, self._kept_s = read, kept_s
        self._tokens: dict[str, tuple[str, float]] = {}
        """Token, and until when it counts, by the fleet's UID."""
        self._reading = SingleFlight[str]()
        """The reads under way, by the fleet's UID: one fleet's slow read keeps no other waiting."""

    async def demand(self, fleet: Json | None, authorization: str | None) -> str:
        """Return the fleet's token if the caller has it; raises Refusal for any other.

        Raises OperatorError when nobody can tell.
        """
        expected = "" if fleet is None else await self._token(fleet)
        # Compared even when it cannot match, so that the time tells nothing.
        matches = hmac.compare_digest(_digest(token_of(authorization)), _digest(expected))
        if not expected or not matches:
            raise Refusal(
                Fault.UNAUTHORIZED, "this needs the fleet's token: Authorization: Bearer <token>"
            )
        return expected

    async def _token(self, fleet: Json) -> str:
        uid = fleet["metadata"]["uid"]
        token, until = self._tokens.get(uid, ("", 0.0))
        if time.monotonic() < until:
            return token
        return await self._reading.join(uid, lambda: self._read_once(fleet, uid))

    async def _read_once(self, fleet: Json, uid: str) -> str:
        try:
            token = await self._read(fleet)
        except Refused:
            token = ""
        kept_s = self._kept_s if token else _ABSENT_S
        now = time.monotonic()
        # Those of fleets that are gone go with the others that ran out.
        self._tokens = {u: known for u, known in self._tokens.items() if now < known[1]}
        self._tokens[uid] = token, now + kept_s
        return token


def _digest(token: str) -> bytes:
    # A header may hold bytes that are no text.
    return sha256(token.encode(errors="surrogateescape")).digest()
