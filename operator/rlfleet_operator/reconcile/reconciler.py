"""One loop per fleet, the driver: observe, plan, publish status, act, wait.

Level-triggered: a pass observes the fleet and takes the next step, whatever woke it. Status
records a rollout before any worker gets a command for it. The driver keeps no other state, so a
restarted operator continues where the last one stopped.

A driver takes over its fleet with its first write, which raises status.epoch by
compare-and-swap; before that it sends no command. A driver that observes a higher epoch ends
(docs/decisions/0010).

A defect in this code ends only this driver, which reports it in status first.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic import ValidationError

from rlfleet_operator import metrics
from rlfleet_operator.clock import WallClock
from rlfleet_operator.core.manifests import pod_manifest
from rlfleet_operator.core.metrics.additions import Tally
from rlfleet_operator.core.model.actions import Action, WorkerCommand
from rlfleet_operator.core.model.fleet import asked_of, fleet_from, named
from rlfleet_operator.core.model.worker_phase import remembered
from rlfleet_operator.core.model.world import Fleet, World, worker_name
from rlfleet_operator.core.plan import Plan, plan
from rlfleet_operator.core.rollout.cohorts import hold_left_s
from rlfleet_operator.core.rollout.following import lookers
from rlfleet_operator.core.rollout.retention import needs
from rlfleet_operator.core.rollout.rollout import Rollout
from rlfleet_operator.core.simulation.preview import with_preview
from rlfleet_operator.core.status import events, invalid_object, size_limit
from rlfleet_operator.core.status.fleet import abandoned, in_deletion, patch_of, status_of, unread
from rlfleet_operator.core.strategy import lora
from rlfleet_operator.core.timers import due_in_s
from rlfleet_operator.core.trainer.models import target_of
from rlfleet_operator.crd.fleet_status import FleetStatus
from rlfleet_operator.errors import Conflict, Missing, NotLeading, OperatorError, Refused, TooLarge
from rlfleet_operator.kube.client import fleet_path, is_newer
from rlfleet_operator.kube.pod_cache import FleetKey
from rlfleet_operator.reconcile import object_errors
from rlfleet_operator.reconcile.event_poster import EventPoster
from rlfleet_operator.reconcile.owned_objects import INTERVAL_S, OwnedObjects
from rlfleet_operator.reconcile.pace import Pace
from rlfleet_operator.reconcile.pod_backoff import PodBackoff
from rlfleet_operator.reconcile.pod_writer import PodWriter
from rlfleet_operator.reconcile.recorded_times import RecordedTimes
from rlfleet_operator.reconcile.shared_clients import SharedClients
from rlfleet_operator.reconcile.status_writer import StatusWriter, write_status
from rlfleet_operator.workers.pool import WorkerPool
from rlfleet_operator.workers.requests import DrivenFleet, epoch_for

_log = logging.getLogger(__name__)

_WRITE_INTERVAL_S = 1.1
"""The shortest interval between writes of a status: about a second, whatever the replies' rate."""
_ERROR_PAUSE_S = 2.0
_STUCK_S = 15.0
"""A driver whose passes fail for so long stops its heartbeat to the workers."""
_REPEAT_S = 600.0
"""The shortest interval between Events about refused writes of a status; they live for an hour."""
_ACQUAINT_S = 3.0
"""How long a new driver waits for the workers' reports, before it takes over and after."""


class Reconciler:
    """Drives one fleet until its deletion."""

    def __init__(self, key: FleetKey, raw: Mapping[str, Any], services: SharedClients) -> None:
        """Start with the object as the watch delivered it."""
        self.key = key
        self.uid = str(raw["metadata"]["uid"])
        self._about = {"namespace": key[0], "fleet": key[1]}
        self._raw, self._asked_since = raw, 0.0
        self._services = services
        metrics.begin(*key)
        self._wake = asyncio.Event()
        defaults = pod_manifest.Defaults(services.settings.worker_image)
        self._pod_writer = PodWriter(services.kube, defaults, self.wake)
        self._parsed: tuple[Mapping[str, Any], Fleet] | None = None
        self._upkeep = OwnedObjects(services.kube, services.term, self._fleet)
        self._writer, self._written_at = StatusWriter(self.wake), 0.0
        self._is_outrun = False
        """Whether a write met a conflict, so that the object must be read again."""
        self._taken: DrivenFleet | None = None
        """UID and epoch of the fleet since this driver took it over."""
        self._has_target = False  # Whether a target or a trainer's pause leads the workers.
        self._failing_since: float | None = None  # Since when passes fail, monotonic.
        self._refusal_due = 0.0  # When an Event may report a refusal again, monotonic.
        self._acquainted_by = time.monotonic() + _ACQUAINT_S
        self._replacements, self._wall = PodBackoff(), WallClock()
        self._times = RecordedTimes(self._wall)
        self._announcements = EventPoster(services.kube)
        self._status_size = size_limit.LIMIT
        self._tally, self._pace = Tally(), Pace()
        self._contacts = WorkerPool(
            services.limit,
            services.settings.poll_seconds,
            self.wake,
            self._upkeep.token,
            self._upkeep.renew,
            lambda: self._taken,
            self._heartbeat_epoch,
            about=self._about,
            certificate=partial(services.certificates.of, key),
        )

    @property
    def epoch(self) -> int:
        """The epoch in every command and status; raises NotLeading before the take-over."""
        if self._taken is None:
            raise NotLeading("this driver has not taken over the fleet yet")
        return self._taken[1]

    def wake(self) -> None:
        """Start the next pass now."""
        self._wake.set()

    def deliver(self, raw: Mapping[str, Any]) -> None:
        """Use this state of the object unless a newer one is known.

        Raises Missing if it is a new fleet with the same name.
        """
        if raw["metadata"]["uid"] != self.uid:
            raise Missing(f"fleet {self.key[1]} was deleted and created again")
        if is_newer(raw, self._raw):
            if asked_of(raw) != asked_of(self._raw):
                self._asked_since = time.time()
            self._raw = raw
            self.wake()

    def _fleet(self) -> Fleet:
        """Return the newest state, parsed once; raises pydantic.ValidationError."""
        if self._parsed is None or self._parsed[0] is not self._raw:
            self._parsed = self._raw, fleet_from(self._raw)
        return self._parsed[1]

    async def run(self) -> None:
        """Loop until the fleet is deleted, another driver takes over, or the task is cancelled."""
        try:
            while True:
                self._wake.clear()
                self._pace.begin()
                wait_s = await self._guarded_pass()
                # One pass handles all events of this pause.
                await asyncio.sleep(self._pace.rest_s)
                try:
                    async with asyncio.timeout(wait_s):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        except Missing:
            _log.info("Fleet deleted", extra=self._about)
        except NotLeading as error:
            extra = {**self._about, "error": str(error)}
            _log.warning("Stopped driving the fleet: not leading", extra=extra)
            self._services.term.end()  # A higher epoch proves another leader, whatever the clock.
        except Exception as error:
            await self._abandon(error)
            raise
        finally:
            await self._writer.close()
            await self._pod_writer.close()
            await self._contacts.close()
            await self._announcements.close()

    async def _guarded_pass(self) -> float:
        """Make one pass and return the seconds to wait; most errors do not end the loop."""
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
            _log.warning("Failed to reconcile the fleet", extra=extra)
            await self._report_failure(error, time.monotonic())
            return _ERROR_PAUSE_S
        return wait_s

    async def _report_failure(self, error: OperatorError | ValidationError, now: float) -> None:
        self._failing_since = self._failing_since or now
        if isinstance(error, ValidationError):
            await self._report_invalid(error)
        elif isinstance(error, Refused) or now - self._failing_since > object_errors.LASTING_S:
            self._report_refused(str(error))

    async def _report_invalid(self, error: ValidationError) -> None:
        """Report in status, and as an Event, that the object cannot be parsed."""
        patch = unread(self._raw, error, time.time())
        metrics.FLEETS.show_conditions(*self.key, (patch or self._raw)["status"]["conditions"])
        if patch is None:
            return
        with contextlib.suppress(OperatorError):
            path = fleet_path(*self.key) + "/status"
            self.deliver(await self._services.kube.patch(path, patch))
            said = invalid_object.message(error)
            event = events.KubeEvent("Warning", invalid_object.REASON, said)
            self._announcements.post(named(self._raw), [event])

    def _report_refused(self, why: str) -> None:
        """Report as an Event why status cannot be written, as by a policy or a lost webhook."""
        if time.monotonic() >= self._refusal_due:
            self._refusal_due = time.monotonic() + _REPEAT_S
            refused = events.KubeEvent("Warning", "ReconcileFailed", why)
            self._announcements.post(named(self._raw), [refused])

    async def _report_deletion(self) -> None:
        """Report in status what keeps the fleet."""
        patch = in_deletion(self._raw)
        if patch is not None:
            self.deliver(await self._services.kube.patch(fleet_path(*self.key) + "/status", patch))

    def _heartbeat_epoch(self) -> int | None:
        """Return the epoch that renews the TTL of workers' changes; None if they must expire.

        A driver that cannot write its status sends no commands, so no change may wait for it.
        """
        since = self._failing_since
        is_stuck = since is not None and time.monotonic() - since > _STUCK_S
        return self._taken.epoch if self._taken and self._has_target and not is_stuck else None

    async def _pass(self) -> float:
        await self._writer.settle()
        if self._is_outrun:
            self.deliver(await self._services.kube.get(fleet_path(*self.key)))
            self._is_outrun = False
        known, raw = self._fleet(), self._raw
        fleet = self._times.dated(known)
        if fleet.deleting:
            # Another controller's finalizer may keep it for long: send no heartbeat until then.
            await self._contacts.close()
            await self._report_deletion()
            return INTERVAL_S
        epoch = epoch_for(fleet, self._taken, self._contacts.highest_epoch)
        await self._upkeep.look(fleet)
        pods = self._services.pods.owned(self.key, fleet.uid)
        self._has_target = fleet.target is not None or fleet.pause_at(time.time()) is not None
        port, target = self._services.settings.admin_port, target_of(fleet, raw)
        await self._contacts.follow(pods, port, target)
        await self._upkeep.keep_up(self._contacts.token_revisions())
        if not self._is_acquainted():
            return self._acquainted_by - time.monotonic()
        (world, step), taken = self._decide(fleet, pods), self._taken
        # A status on its way may name a version that this pass no longer knows of.
        wanted = None if self._writer.is_busy else needs(world, step.rollout)
        self._contacts.look(lookers(world, step.rollout), wanted)
        write_in_s = await self._publish(world, step.rollout, epoch, known, raw)
        # A plan from before the take-over may be stale.
        if taken == self._taken == (fleet.uid, epoch):
            self._act(fleet, step.actions)
        waits = (write_in_s, due_in_s(world), hold_left_s(world))
        return min(self._retry_in_s(), *(wait or INTERVAL_S for wait in waits))

    def _retry_in_s(self) -> float:
        """Return the seconds until a failed write of pods or owned objects is retried."""
        return min(self._upkeep.again_in_s(), self._pod_writer.retry_in_s())

    def _decide(self, fleet: Fleet, pods: Mapping[str, Any]) -> tuple[World, Plan]:
        with self._pace.counting():
            world = self._observe(fleet, pods)
            step = plan(world)
            metrics.count(*self.key, self._tally.add(world.workers))
        self._pace.workers = len(world.workers)
        return world, step

    def _status(self, world: World, rollout: Rollout | None, epoch: int) -> FleetStatus:
        with self._pace.counting():
            status = with_preview(world, status_of(world, rollout, self._status_size))
            metrics.show(world, status)
        return status.model_copy(update={"epoch": epoch})

    def _is_acquainted(self) -> bool:
        """Return whether every worker has answered, or the time to answer is over."""
        return self._contacts.have_all_answered() or time.monotonic() >= self._acquainted_by

    def _observe(self, fleet: Fleet, pods: Mapping[str, Any]) -> World:
        ordinals = {pod.ordinal for pod in pods.values()} | set(range(fleet.spec.replicas))
        names = {ordinal: worker_name(fleet.name, ordinal) for ordinal in sorted(ordinals)}
        moment = time.time()
        self._replacements.see(pods, names.values(), time.monotonic())
        paused, is_dated = fleet.pause_at(moment) is not None, lora.may_inherit(fleet.spec)
        workers = (
            self._contacts.worker(
                name,
                n,
                pod := pods.get(name),
                fleet_paused=paused,
                replace_at=self._replacements.replace_at(name, pod, self._wall),
                is_dated=is_dated,
            )
            for n, name in names.items()
        )
        return World(
            fleet=fleet,
            workers=remembered(workers, fleet.status),
            template_hash=pod_manifest.template_hash(fleet),
            moment=moment,
            trouble=self._trouble_for_status(),
            token_revision=self._upkeep.token_revision,
            asked_since=self._asked_since,
        )

    def _trouble_for_status(self) -> str | None:
        now, found = time.monotonic(), (self._upkeep.trouble, self._pod_writer.trouble)
        return next((text for one in found if one and (text := one.for_status(now))), None)

    def _act(self, fleet: Fleet, actions: tuple[Action, ...]) -> None:
        """Send the commands, and begin to write the pods."""
        for action in actions:
            if isinstance(action, WorkerCommand):
                self._contacts.command(action, fleet.spec.rollout)
        on_pods = [a for a in actions if not isinstance(a, WorkerCommand)]
        self._pod_writer.begin(fleet, on_pods)

    async def _publish(
        self,
        world: World,
        rollout: Rollout | None,
        epoch: int,
        fleet: Fleet,
        raw: Mapping[str, Any],
    ) -> float:
        """Write a changed status, or begin to; return the seconds until one that came too early.

        Waits for the take-over, and for each write after an error. ``fleet`` is the API server's.
        """
        early_s = _WRITE_INTERVAL_S - (time.monotonic() - self._written_at)
        if early_s > 0 and self._failing_since is None:
            return early_s
        await asyncio.sleep(early_s)  # After an error nothing is done before a write.
        if self._writer.is_busy:
            return INTERVAL_S
        status = self._status(world, rollout, epoch)
        if status == fleet.status:
            if self._failing_since is not None:
                self._failing_since = None  # The next pass sends the heartbeats that stopped.
                self.wake()
            return INTERVAL_S
        write, is_taken = self._put(fleet, status, raw), self._taken == (fleet.uid, status.epoch)
        if is_taken and self._failing_since is None:
            # Status has this rollout, or the plan has no command of it: none waits for the write.
            self._writer.begin(write)
        else:
            await write
        return INTERVAL_S

    async def _put(self, fleet: Fleet, status: FleetStatus, raw: Mapping[str, Any]) -> None:
        """Write a status, and deliver what the API server made of it."""
        if self._taken is not None and status.epoch > self._taken.epoch:
            # If the answer is lost, the epoch may be another driver's: take over again.
            self._taken = None
        try:
            written = await self._write(status, raw)
        finally:
            # Measured from its end, so that a slow write does not shorten the interval.
            self._written_at = time.monotonic()
        taken = DrivenFleet(fleet.uid, status.epoch)
        if taken != self._taken:
            self._taken, self._acquainted_by = taken, time.monotonic() + _ACQUAINT_S
            self._contacts.lead(taken.epoch)
        self._failing_since = None
        metrics.count_status(fleet, status)
        self.deliver(written)
        self.wake()
        self._announcements.post(fleet, events.between(fleet.status, status))

    async def _write(self, status: FleetStatus, raw: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return await write_status(self._services.kube, raw, patch_of(status))
        except TooLarge:
            # The driver sends no command until status is written: make it smaller.
            self._status_size = size_limit.after_refusal(status, self._status_size)
            raise

    async def _abandon(self, error: Exception) -> None:
        """Report the defect that ends this driver in status, if that can be written."""
        # It may be written already: then the object has another version.
        await self._writer.end()
        with contextlib.suppress(OperatorError, ValidationError):
            fleet = self._fleet()
            status = abandoned(fleet, object_errors.message_of(error), time.time())
            metrics.FLEETS.show_conditions(*self.key, patch_of(status)["conditions"])
            epoch = epoch_for(fleet, self._taken, self._contacts.highest_epoch)
            await self._write(status.model_copy(update={"epoch": epoch}), self._raw)
