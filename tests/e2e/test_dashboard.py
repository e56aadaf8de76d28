"""Every query of the dashboard against a Prometheus that scraped operator and vLLM."""

import json
from pathlib import Path

import pytest

from dev import steps
from dev.demo import stage
from dev.prometheus import programs
from dev.servers import free_ports
from dev.shell import Shell
from rlfleet_contract import paths
from tests.dashboard import has_data, queries
from tests.e2e.scenario import Fleet, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

_METRICS = 8081


def test_each_query_returns_data_of_a_rollout_under_load(
    fleet: Fleet, shell: Shell, tmp_path: Path
) -> None:
    steps.run(programs.build_steps())
    engines = [f"{pod['status']['podIP']}:{paths.ENGINE_PORT}" for pod in fleet.pods().values()]
    label = f"app.kubernetes.io/instance={stage.RELEASE}"
    words = ("-n", stage.OPERATOR_NAMESPACE, "get", "pods", "-l", label, "-o", "json")
    operators = json.loads(shell.run("kubectl", *words))["items"]
    jobs = {
        "operator": [f"{pod['status']['podIP']}:{_METRICS}" for pod in operators],
        "engines": engines,
    }
    (port,) = free_ports(1)
    with programs.running(tmp_path / "prometheus", port, jobs) as prometheus:

        def is_seen(expression: str) -> bool:
            return has_data(prometheus.query(expression))

        # A rate needs a scrape before the change and one after.
        until(lambda: is_seen('rlfleet_version_number{use="serving"} == 0'), 60, "step-0 is seen")
        with fleet.under_load():
            fleet.declare("step-1")
            fleet.wait_synced()
        until(lambda: is_seen('rlfleet_version_number{use="serving"} == 1'), 60, "step-1 is seen")

        assert [query for query in queries() if not is_seen(query)] == []
