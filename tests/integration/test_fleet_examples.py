"""What docs/reference/http.md shows of the fleet API is what it answers."""

from pathlib import Path

import pytest

from dev.docs.fleet_examples import EXAMPLES
from dev.docs.http_example import agrees
from dev.kubernetes import apiserver
from rlfleet_operator.core.trainer.routes import OFFERS
from tests.integration.conftest import Fleet, until
from tests.integration.trainers import SPEC, Replica, Trainer

pytestmark = pytest.mark.integration


async def test_each_example_is_answered_as_it_is_shown(
    plane: apiserver.ControlPlane, tmp_path: Path, namespace: str, fleet: Fleet, node: object
) -> None:
    operator, trainer = Replica(plane, tmp_path / "operator.log", namespace), Trainer(fleet)
    operator.start()
    try:
        await until(operator.is_listening)
        await fleet.create(**SPEC)
        await until(lambda: fleet.is_at_epoch(1), describe=fleet.describe)
        for example in EXAMPLES:
            method, _, path = example.request.partition(" /v1/rl/")
            said = await trainer.asks(operator, method, path, json=example.body)
            assert agrees(example, said.status, "", said.body), f"{example.request}: {said}"
    finally:
        operator.kill()


def test_each_route_has_an_example() -> None:
    routes = {f"{offer.method} /v1/rl/{name}" for name, offer in OFFERS.items()}

    assert {example.route for example in EXAMPLES} == routes
