"""One loop per fleet: observe, plan, publish, act, wait.

Level-triggered: a pass looks at what is there and takes the next step, whatever
woke it. A rollout is on record before anything is done for it, because a plan
asks nothing of a worker for a rollout that status does not name. Nothing else
is remembered, so a restarted operator goes on where the last one stopped.

A driver takes its fleet over with its first write, which raises status.epoch by
compare-and-swap; before that it commands nobody. Whoever finds a higher epoch
than its own is not the driver any more, and ends (docs/decisions/0010).

What fails here by a defect of ours ends this driver alone; status says so first.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from rlfleet_operator import metrics
from rlfleet_operator.clock import Wall
from rlfleet_operator.core.manifests import pod_manifest
from rlfleet_operator.core.model.actions import Action, PodAction, WorkerCommand, first_of_each
from rlfleet_operator.core.model.world import Fleet, World, fleet_from, named, worker_name
from rlfleet_operator.core.plan import Plan, plan
from rlfleet_operator.core.rollout.cohorts import hold_left_s
from rlfleet_operator.core.simulation.preview import with_preview
from rlfleet_operator.core.status import conditions, events, size_limit
from rlfleet_operator.core.status.fleet import abandoned, patch_of, status_of, unread
from rlfleet_operator.core.timers import due_in_s
from rlfleet_operator.core.trainer.models import target_of
from rlfleet_operator.crd.fleet_status import FleetStatus
from rlfleet_operator.errors import Conflict, Missing, NotLeading, OperatorError, TooLarge
from rlfleet_operator.kube import apply
from rlfleet_operator.kube.client import fleet_path, is_newer
from rlfleet_operator.kube.pod_cache import FleetKey
from rlfleet_operator.reconcile import object_errors
from rlfleet_operator.reconcile.event_poster import Announcements
from rlfleet_operator.reconcile.object_errors import Trouble
from rlfleet_operator.reconcile.owned_objects import INTERVAL_S, Upkeep
from rlfleet_operator.reconcile.pod_backoff import Replacements
from rlfleet_operator.reconcile.shared import Services
from rlfleet_operator.reconcile.trainer_pause_end import PauseEnd
from rlfleet_operator.workers.pool import Contacts
from rlfleet_operator.workers.requests import Taken, epoch_for

_log = logging.getLogger(__name__)

_WRITE_INTERVAL_S = 1.1
"""A fleet's status is written once in this time at most: once a second, however replies jitter."""
_ERROR_PAUSE_S = 2.0
_STUCK_S = 15.0
"""Passes that have failed for so long are no sign of life any more."""
_POD_RETRY_S = 5.0
"""When pods are written again after what may pass by itself."""
_REST_SHARE = 3.0
"""How many times longer than it planned a loop rests: the largest fleet takes a quarter of it."""
_POD_BATCH = 128
"""How many pods are made, ended or marked before it is looked again whether they have to be."""
_ACQUAINT_S = 3.0
"""How long a new driver waits for each worker's answer, before it takes over and after."""


class Driver:
    """Drives one fleet until it is gone."""

    def __init__(self, key: FleetKey, raw: Mapping[str, Any], services: Services) -> None:
        """Begin with the object as it was delivered."""
        self.key = key
        self.uid = str(raw["metadata"]["uid"])
        self._about = {"namespace": key[0], "fleet": key[1]}
        self._raw = raw
        self._services = services
        metrics.begin(*key)
        self._wake = asyncio.Event()
        self._defaults = pod_manifest.Defaults(services.settings.worker_image)
        self._upkeep = Upkeep(services.kube, services.term, lambda: fleet_from(self._raw))
        self._trouble: Trouble | None = None
        """Why an action of the last pass on pods failed; None when none did."""
        self._written_at = 0.0
        self._is_outrun = False
        """Whether somebody wrote the object in between: it has to be read anew."""
        self._taken: Taken | None = None
        """UID of the fleet that was taken over, and its epoch then."""
        self._is_asked = False  # Whether anybody asks anything of the workers.
        self._failing_since: float | None = None
        """Since when status could not be brought up to date, by the monotonic clock."""
        self._acquainted_by = time.monotonic() + _ACQUAINT_S
        self._acting: asyncio.Task[None] | None = None
        """Writes pods for an earlier pass, beside the loop."""
        self._is_behind = False  # Whether a pass since then has asked for more.
        self._replacements, self._wall = Replacements(), Wall()
        self._pause_end = PauseEnd(self._wall)
        self._announcements = Announcements(services.kube)
        self._status_size = size_limit.LIMIT
        self._thought_s = 0.0  # For which the last pass observed and planned.
        self._contacts = Contacts(
            services.limit,
            services.settings.poll_seconds,
            self.wake,
            self._upkeep.token,
            self._upkeep.renew,
            lambda: self._taken,
            self._sign,
            about=self._about,
        )

    @property
    def epoch(self) -> int:
        """What every command and every status of this driver carries.

        Raises NotLeading while the fleet is not taken over.
        """
        if self._taken is None:
            raise NotLeading("the fleet is not taken over yet")
        return self._taken[1]

    def wake(self) -> None:
        """Have the loop look again."""
        self._wake.set()

    def deliver(self, raw: Mapping[str, Any]) -> None:
        """Take a newer state of the object; one that is older than our own write is left.

        Raises Missing when another fleet has its name by now.
        """
        if raw["metadata"]["uid"] != self.uid:
            raise Missing(f"fleet {self.key[1]} is gone; another has its name")
        if is_newer(raw, self._raw):
            self._raw = raw
            self.wake()

    async def run(self) -> None:
        """Loop until the fleet is gone, another drives it, or the task is cancelled."""
        try:
            while True:
                self._wake.clear()
                wait_s = await self._guarded_pass()
                # What comes in meanwhile is dealt with together.
                await asyncio.sleep(_REST_SHARE * self._thought_s)
                try:
                    async with asyncio.timeout(wait_s):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        except Missing:
            _log.info("The fleet is gone", extra=self._about)
        except NotLeading as error:
            extra = {**self._about, "error": str(error)}
            _log.warning("This process no longer drives the fleet", extra=extra)
            # By a higher epoch another process leads, whatever our clock says.
            self._services.term.end()
        except Exception as error:
            await self._abandon(error)
            raise
        finally:
            if self._acting is not None:
                self._acting.cancel()
                await asyncio.gather(self._acting, return_exceptions=True)
            await self._contacts.close()
            await self._announcements.close()

    async def _guarded_pass(self) -> float:
        """Make one pass; whatever fails in it, the loop goes on."""
        try:
            with metrics.RECONCILE.time():
                wait_s = await self._pass()
        except (Missing, NotLeading):
            raise
        except Conflict:
            self._is_outrun = True
            return 0.1
        except (OperatorError, ValidationError) as error:
            extra = {**self._about, "error": str(error)}
            _log.warning("A pass over the fleet failed", extra=extra)
            self._failing_since = self._failing_since or time.monotonic()
            if isinstance(error, ValidationError):
                await self._tell_unread(error)
            return _ERROR_PAUSE_S
        return wait_s

    async def _tell_unread(self, error: ValidationError) -> None:
        """Say in status, and in an Event, that the object cannot be parsed."""
        patch = unread(self._raw, error, time.time())
        if patch is None:
            return
        with contextlib.suppress(OperatorError):
            path = fleet_path(*self.key) + "/status"
            self.deliver(await self._services.kube.patch(path, patch))
            event = events.KubeEvent("Warning", conditions.UNREAD, conditions.unread(error))
            self._announcements.post(named(self._raw), [event])

    def _sign(self) -> int | None:
        """Return the epoch that keeps workers' changes alive; None while nobody goes on with them.

        A driver that cannot write its status sends no command, and must not have them wait for it.
        """
        since = self._failing_since
        is_stuck = since is not None and time.monotonic() - since > _STUCK_S
        return self._taken.epoch if self._taken and self._is_asked and not is_stuck else None

    async def _pass(self) -> float:
        if self._is_outrun:
            self.deliver(await self._services.kube.get(fleet_path(*self.key)))
            self._is_outrun = False
        known = fleet_from(raw := self._raw)
        fleet = self._pause_end.dated(known)
        if fleet.deleting:
            # Somebody else's finalizer may hold it for long: no sign of ours keeps a change alive.
            await self._contacts.close()
            return INTERVAL_S
        epoch = epoch_for(fleet, self._taken, self._contacts.heard_epoch)
        await self._upkeep.look(fleet)
        pods = self._services.pods.owned(self.key, fleet.uid)
        self._is_asked = fleet.target is not None or fleet.pause_at(time.time()) is not None
        await self._contacts.follow(pods, self._services.settings.admin_port, target_of(fleet, raw))
        if not self._is_acquainted():
            return self._acquainted_by - time.monotonic()
        world, step, status = self._decide(fleet, pods)
        status, taken = status.model_copy(update={"epoch": epoch}), self._taken
        write_in_s = await self._publish(replace(world, fleet=known), status, raw)
        # What was planned before the workers knew of this driver may be overtaken.
        if taken == self._taken == (fleet.uid, epoch):
            self._act(fleet, step.actions)
        waits = (write_in_s, due_in_s(world), hold_left_s(world))
        return min(self._retry_in_s(), *(wait or INTERVAL_S for wait in waits))

    def _retry_in_s(self) -> float:
        """Return the seconds until what failed around the pods or with them is tried again."""
        is_soon = self._is_behind or (self._trouble is not None and self._trouble.may_pass)
        return min(self._upkeep.again_in_s(), _POD_RETRY_S if is_soon else INTERVAL_S)

    def _decide(self, fleet: Fleet, pods: Mapping[str, Any]) -> tuple[World, Plan, FleetStatus]:
        begun = time.monotonic()
        world = self._observe(fleet, pods)
        step = plan(world)
        status = with_preview(world, status_of(world, step.rollout, self._status_size))
        self._thought_s = time.monotonic() - begun
        return world, step, status

    def _is_acquainted(self) -> bool:
        """Tell whether each worker has answered, or had its time to: silence is no news."""
        return self._contacts.have_all_answered() or time.monotonic() >= self._acquainted_by

    def _observe(self, fleet: Fleet, pods: Mapping[str, Any]) -> World:
        ordinals = {pod.ordinal for pod in pods.values()} | set(range(fleet.spec.replicas))
        names = {ordinal: worker_name(fleet.name, ordinal) for ordinal in sorted(ordinals)}
        moment = time.time()
        self._replacements.see(pods, names.values(), time.monotonic())
        is_held = fleet.pause_at(moment) is not None
        found = (self._contacts.worker(name, n, pods.get(name)) for n, name in names.items())
        return World(
            fleet=fleet,
            workers=tuple(
                self._replacements.dated(replace(w, held=is_held), self._wall) for w in found
            ),
            template_hash=pod_manifest.template_hash(fleet),
            moment=moment,
            trouble=self._told_trouble(),
        )

    def _told_trouble(self) -> str | None:
        now, found = time.monotonic(), (self._upkeep.trouble, self._trouble)
        return next((told for one in found if one and (told := one.told(now))), None)

    def _act(self, fleet: Fleet, actions: tuple[Action, ...]) -> None:
        """Send the commands, and write pods beside the loop, one pass's at a time."""
        for action in actions:
            if isinstance(action, WorkerCommand):
                self._contacts.command(action, fleet.spec.rollout)
        on_pods = [a for a in actions if not isinstance(a, WorkerCommand)]
        if self._acting is not None and not self._acting.done():
            self._is_behind = bool(on_pods)
            return
        if self._acting is not None:
            self._acting.result()
        batch = first_of_each(on_pods, _POD_BATCH)
        self._is_behind = len(on_pods) > len(batch)
        self._acting = asyncio.create_task(self._write_pods(fleet, batch))

    async def _write_pods(self, fleet: Fleet, actions: Sequence[PodAction]) -> None:
        errors = await apply.pods(self._services.kube, fleet, actions, self._defaults)
        before = self._trouble
        self._trouble = object_errors.after(errors, before, time.monotonic())
        gets_on = self._is_behind and len(errors) < len(actions)
        if gets_on or (self._trouble is None) != (before is None):
            # Status has to tell it, and what failed once may succeed at once.
            self.wake()

    async def _publish(self, world: World, status: FleetStatus, raw: Mapping[str, Any]) -> float:
        """Write the status if it says something new; return the seconds until it may be written."""
        fleet = world.fleet
        metrics.count_workers(fleet, world.workers)
        if status == fleet.status:
            self._failing_since = None
            return INTERVAL_S
        since = time.monotonic() - self._written_at
        if since < _WRITE_INTERVAL_S:
            return _WRITE_INTERVAL_S - since
        if self._taken is not None and status.epoch > self._taken.epoch:
            # If the answer is lost, nobody can tell our number from another's: we take it anew.
            self._taken = None
        try:
            written = await self._write(status, raw)
        finally:
            # Not from its beginning: a slow write would stand close before the next.
            self._written_at = time.monotonic()
        taken = Taken(fleet.uid, status.epoch)
        if taken != self._taken:
            self._taken, self._acquainted_by = taken, time.monotonic() + _ACQUAINT_S
            self._contacts.lead(taken.epoch)
        self._failing_since = None
        metrics.count_status(fleet, status)
        self.deliver(written)
        self.wake()
        self._announcements.post(fleet, events.between(fleet.status, status))
        return INTERVAL_S

    async def _write(self, status: FleetStatus, raw: Mapping[str, Any]) -> dict[str, Any]:
        # Over what was planned from: a newer one may have been delivered meanwhile.
        version = raw["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "status": patch_of(status)}
        try:
            return await self._services.kube.patch(fleet_path(*self.key) + "/status", body)
        except TooLarge:
            # A driver that cannot write the status may command no worker.
            self._status_size = size_limit.after_refusal(status, self._status_size)
            raise

    async def _abandon(self, error: Exception) -> None:
        """Tell in status, if it can be told there, why nobody drives the fleet for a while."""
        with contextlib.suppress(OperatorError, ValidationError):
            fleet = fleet_from(self._raw)
            status = abandoned(fleet, object_errors.said_of(error), time.time())
            epoch = epoch_for(fleet, self._taken, self._contacts.heard_epoch)
            await self._write(status.model_copy(update={"epoch": epoch}), self._raw)
