"""The client of a fleet, for code that waits."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from rlfleet.fleet import flows
from rlfleet.fleet.replies import ChangeResult, FleetState
from rlfleet.fleet.runner import FlowRunner
from rlfleet.fleet.settings import (
    DEFAULT_S,
    UPDATE_S,
    FleetPauseMode,
    headers_of,
    root_of,
    verification_of,
)


class FleetClient(FlowRunner):
    """A fleet, by its URL: ``http://OPERATOR:8082/fleets/NAMESPACE/NAME``.

    Every method raises FleetError. Lost replies are requested again until the time is over.
    """

    def __init__(self, url: str, token: str | None = None, ca: Path | str | None = None) -> None:
        """Connect with the first request.

        ``token`` is the fleet's admin token, by default the environment's VLLM_API_KEY.

        ``ca`` is a PEM file with the CA of a server that speaks HTTPS, such as the ca.crt of a
        mounted Secret; by default the CAs that httpx knows.
        """
        client = httpx.Client(
            base_url=root_of(url),
            headers=headers_of(url, token),
            verify=verification_of(ca),
            trust_env=False,
        )
        super().__init__(client)

    def update_weights(
        self,
        version: str,
        timeout_s: float = UPDATE_S,
        progress: flows.OnProgress = lambda _: None,
    ) -> ChangeResult:
        """Return when every worker has proved the version.

        ``progress`` gets a result about each half minute while the rollout continues.
        """
        return self._run(flows.update(version, timeout_s, time.monotonic, progress))

    def pause(
        self,
        mode: FleetPauseMode = "keep",
        *,
        clear_cache: bool = True,
        ttl_s: float | None = None,
        timeout_s: float = DEFAULT_S,
    ) -> ChangeResult:
        """Pause every worker; it resumes by itself ``ttl_s`` after the last request."""
        fields = flows.pause_fields(mode, clear_cache=clear_cache, ttl_s=ttl_s)
        return self._run(flows.changed("pause", fields, timeout_s, time.monotonic))

    def resume(self, timeout_s: float = DEFAULT_S) -> ChangeResult:
        """Resume every worker with the version that it proved."""
        return self._run(flows.changed("resume", {}, timeout_s, time.monotonic))

    def flush_cache(self, timeout_s: float = DEFAULT_S) -> ChangeResult:
        """Empty the caches of a paused fleet."""
        return self._run(flows.changed("flush_cache", {}, timeout_s, time.monotonic))

    @contextmanager
    def paused(
        self,
        mode: FleetPauseMode = "keep",
        *,
        clear_cache: bool = True,
        ttl_s: float | None = None,
        timeout_s: float = DEFAULT_S,
    ) -> Iterator[ChangeResult]:
        """Pause the fleet for this context, and resume it at its end, after an error too."""
        result = self.pause(mode, clear_cache=clear_cache, ttl_s=ttl_s, timeout_s=timeout_s)
        try:
            yield result
        finally:
            self.resume(timeout_s)

    def state(self, timeout_s: float = DEFAULT_S) -> FleetState:
        """Return the fleet now."""
        return self._run(flows.state(timeout_s, time.monotonic))

    def wait(self, version: str, timeout_s: float = UPDATE_S) -> FleetState:
        """Return when every worker serves a version that spec or another client sets."""
        return self._run(flows.wait(version, timeout_s, time.monotonic))
