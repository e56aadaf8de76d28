"""Reconciles a fleet's Services, Secret and PodDisruptionBudget, and reads its admin token."""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Collection

from rlfleet_operator.core.manifests.owned_objects import AdminToken
from rlfleet_operator.core.model.world import Fleet
from rlfleet_operator.errors import Conflict, Missing, NotLeading, OperatorError
from rlfleet_operator.kube import apply
from rlfleet_operator.kube.client import KubeClient
from rlfleet_operator.kube.lease import LeaseTerm
from rlfleet_operator.reconcile import object_errors
from rlfleet_operator.reconcile.object_errors import ObjectFailure

_log = logging.getLogger(__name__)

INTERVAL_S = 60.0
"""How often Services, Secret and PodDisruptionBudget are reconciled without a cause."""
_RENEW_S = 5.0
"""The shortest interval between two reads of the token, however many workers reject it."""
_SOON_S, _LATER_S = 5.0, 10.0
"""Pause after an error that may pass, and after one that a user has to fix."""


class OwnedObjects:
    """Reconciles the objects around one fleet's pods."""

    def __init__(self, kube: KubeClient, term: LeaseTerm, fleet: Callable[[], Fleet]) -> None:
        """Start with nothing reconciled; ``fleet`` returns the newest state of the fleet."""
        self._kube, self._term, self._fleet = kube, term, fleet
        self._token: AdminToken | None = None
        self._renewing = asyncio.Lock()
        self._renewed_at = -math.inf
        self._unread: OperatorError | None = None
        """The error of the last read of the token; None after a success."""
        self._seen: tuple[str, int] | None = None
        """UID and generation of the fleet at the last reconciliation."""
        self._again_at = 0.0
        self.trouble: ObjectFailure | None = None
        """Why the last reconciliation failed; None after a success."""
        self._is_token_old = False
        """Whether workers have mounted another revision of the token than the one read."""

    @property
    def token_revision(self) -> str | None:
        """The revision of the token that requests are sent with."""
        return None if self._token is None else self._token.revision

    def again_in_s(self) -> float:
        """Return the seconds until the next reconciliation is due."""
        if self.trouble is not None:
            return max(0.0, self._again_at - time.monotonic())
        return _RENEW_S if self._is_token_old else INTERVAL_S

    async def look(self, fleet: Fleet) -> None:
        """Reconcile the objects if it is due; raises Conflict and NotLeading only."""
        now, seen = time.monotonic(), (fleet.uid, fleet.generation)
        if self._seen == seen and now < self._again_at:
            return
        try:
            await apply.surroundings(self._kube, fleet)
            self._token = await apply.admin_token(self._kube, fleet)
        except (Conflict, NotLeading):
            raise
        except OperatorError as error:
            extra = {"namespace": fleet.namespace, "fleet": fleet.name, "error": str(error)}
            _log.warning("Failed to reconcile Services, Secret or PodDisruptionBudget", extra=extra)
            self.trouble = object_errors.after([error], self.trouble, now)
            pause_s = _SOON_S if object_errors.may_pass(error) else _LATER_S
        else:
            self.trouble, pause_s = None, INTERVAL_S
        self._seen, self._again_at = seen, now + pause_s

    async def token(self) -> str:
        """Return the admin token for a request; raises NotLeading if this process must not send."""
        token = self._token or await self.renew()
        self._term.demand()
        return token.token

    async def keep_up(self, mounted: Collection[str | None]) -> None:
        """Read the token again if a worker has mounted another revision of it."""
        self._is_token_old = bool(set(mounted) - {None, self.token_revision})
        if self._is_token_old:
            with contextlib.suppress(OperatorError):
                self._is_token_old = bool(set(mounted) - {None, (await self.renew()).revision})

    async def renew(self) -> AdminToken:
        """Read the token again, at most once per 5 s.

        If it was replaced without an overlap, each worker rejects the new one until its kubelet
        has mounted it.
        """
        async with self._renewing:
            if time.monotonic() >= self._renewed_at + _RENEW_S:
                self._renewed_at = time.monotonic()
                try:
                    self._token = await apply.admin_token(self._kube, self._fleet())
                except OperatorError as error:
                    self._unread = error
                else:
                    self._unread = None
        if self._unread is not None or self._token is None:
            raise self._unread or Missing("the token has not been read yet")
        return self._token
