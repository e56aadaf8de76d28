"""Authorizes requests to the fleet API by the fleet's token.

During a rotation two tokens are accepted. A token that is missing, empty or unreadable must admit
no caller. The comparison must take constant time, and a fleet that does not exist must get the
same answer as a wrong token.
"""

import hmac
import time
from collections.abc import Awaitable, Callable
from hashlib import sha256

from rlfleet_contract.auth import token_of
from rlfleet_contract.single_flight import SingleFlight
from rlfleet_operator.core.manifests.owned_objects import AdminToken
from rlfleet_operator.core.trainer.models import Fault, Refusal
from rlfleet_operator.errors import Refused
from rlfleet_operator.kube.client import Json

_KNOWN_S = 5.0
"""How long a token is cached, so that unauthorized callers cannot cause reads of Secrets."""
_ABSENT_S = 1.0


class TokenCache:
    """A cache of fleets' tokens, with the check of requests."""

    def __init__(
        self, read: Callable[[Json], Awaitable[AdminToken]], kept_s: float = _KNOWN_S
    ) -> None:
        """Cache tokens for ``kept_s`` seconds; ``read`` raises Refused if a fleet has none."""
        self._read, self._kept_s = read, kept_s
        self._tokens: dict[str, tuple[AdminToken | None, float]] = {}
        """Token and its expiry, by the fleet's UID."""
        self._reading = SingleFlight[AdminToken | None]()
        """The reads under way, by the fleet's UID, so that a slow one delays no other fleet."""

    async def demand(self, fleet: Json | None, authorization: str | None) -> str:
        """Return the token to send if the caller sent an accepted one; raises Refusal otherwise.

        Raises OperatorError if the token cannot be read.
        """
        known = None if fleet is None else await self._token(fleet)
        given = token_of(authorization)
        # Compared with each, and even if it cannot match, so that the time reveals nothing.
        accepted = ("",) if known is None else known.accepted
        matches = [hmac.compare_digest(_digest(given), _digest(one)) for one in accepted]
        if known is None or not given or not any(matches):
            raise Refusal(
                Fault.UNAUTHORIZED,
                "no such fleet, or wrong token; send Authorization: Bearer <fleet's token>",
            )
        return known.token

    async def _token(self, fleet: Json) -> AdminToken | None:
        uid = fleet["metadata"]["uid"]
        token, until = self._tokens.get(uid, (None, 0.0))
        if time.monotonic() < until:
            return token
        return await self._reading.join(uid, lambda: self._read_once(fleet, uid))

    async def _read_once(self, fleet: Json, uid: str) -> AdminToken | None:
        try:
            token: AdminToken | None = await self._read(fleet)
        except Refused:
            token = None
        kept_s = self._kept_s if token else _ABSENT_S
        now = time.monotonic()
        # Removes expired tokens, those of deleted fleets included.
        self._tokens = {u: known for u, known in self._tokens.items() if now < known[1]}
        self._tokens[uid] = token, now + kept_s
        return token


def _digest(token: str) -> bytes:
    # A header may contain bytes that are no UTF-8.
    return sha256(token.encode(errors="surrogateescape")).digest()
