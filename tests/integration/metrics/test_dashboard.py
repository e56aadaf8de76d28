"""Every query of the dashboard against a real Prometheus that scraped operator and engines."""

import asyncio
from pathlib import Path

import pytest

from dev import steps
from dev.kubernetes import apiserver
from dev.prometheus import programs
from dev.servers import free_ports
from rlfleet_contract import paths
from tests.dashboard import has_data, queries
from tests.hollow import HollowNode
from tests.integration.conftest import Fleet, Operator, until

pytestmark = pytest.mark.integration


async def test_each_query_returns_data_after_two_rollouts(
    plane: apiserver.ControlPlane, node: HollowNode, fleet: Fleet, tmp_path: Path
) -> None:
    steps.run(programs.build_steps())
    port, queried_at = free_ports(2)
    operator = Operator(
        plane, tmp_path / "operator.log", fleet.namespace, RLFLEET_METRICS_PORT=str(port)
    )
    operator.start()
    try:
        await fleet.create(weightVersion="step-1")
        await fleet.synced()
        pods = (await fleet.pods()).values()
        engines = [f"{pod['status']['podIP']}:{paths.ENGINE_PORT}" for pod in pods]
        jobs = {"operator": [f"127.0.0.1:{port}"], "engines": engines}
        with programs.running(tmp_path / "prometheus", queried_at, jobs) as prometheus:

            async def is_seen(expression: str) -> bool:
                return has_data(await asyncio.to_thread(prometheus.query, expression))

            # A rate needs a scrape before the change and one after.
            await until(lambda: is_seen('rlfleet_version_number{use="serving"} == 1'))
            await fleet.patch(weightVersion="step-2")
            await fleet.synced()
            await until(lambda: is_seen('rlfleet_version_number{use="serving"} == 2'))
            # On a busy machine a scrape may come before the rollout's end is recorded.
            await until(lambda: is_seen("increase(rlfleet_rollout_seconds_count[5m]) > 0"))
            await until(lambda: is_seen('rlfleet_version_timestamp_seconds{use="serving"}'))
            await until(lambda: is_seen("vllm:num_requests_running"))

            empty = [query for query in queries() if not await is_seen(query)]
            assert empty == []
            assert not await is_seen('ALERTS{alertstate="firing"}')
            windows = prometheus.query("sum(rlfleet_window_seconds_count)")
            assert float(windows[0]["value"][1]) >= 2
    finally:
        operator.stop()
