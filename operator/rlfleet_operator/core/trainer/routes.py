"""What the fleet API offers, in the order of its documentation. Pure.

The server is put together from it, and docs/reference/http.md is written from it, so that
neither knows of a route that the other lacks.
"""

from typing import NamedTuple

from rlfleet_contract.schema import ContractRequest
from rlfleet_operator.core.trainer.models import UpdateWeights
from rlfleet_operator.core.trainer.pause_rules import PauseRequested


class FleetRoute(NamedTuple):
    """One route below ``/fleets/NAMESPACE/NAME/v1/rl``."""

    method: str
    meaning: str
    takes: type[ContractRequest] | None = None
    """The fields of its body."""
    is_query: bool = False
    """Whether they may stand in the query as well."""


OFFERS = {
    "workers": FleetRoute("GET", "List the workers as Dynamo's discovery does."),
    "state": FleetRoute("GET", "Return the fleet and every worker, as their sidecars report now."),
    "update_weights": FleetRoute(
        "POST", "Request a version, and answer when its rollout has ended.", UpdateWeights
    ),
    "pause": FleetRoute("POST", "Pause every worker, or none.", PauseRequested, is_query=True),
    "resume": FleetRoute(
        "POST", "Resume every worker with its proved version.", PauseRequested, is_query=True
    ),
    "flush_cache": FleetRoute(
        "POST", "Empty the caches of every worker of a paused fleet.", PauseRequested, is_query=True
    ),
}

CLASSIC = {
    "health": FleetRoute("GET", "Return whether every worker serves or is paused."),
    "v1/models": FleetRoute("GET", "List the fleet's model."),
    "pause": FleetRoute(
        "POST", "Pause every worker that takes traffic.", PauseRequested, is_query=True
    ),
    "update_weights": FleetRoute("POST", "Request the version in `weight_dir`."),
    "resume": FleetRoute("POST", "Resume every worker with its proved version."),
    "init_broadcaster": FleetRoute(
        "POST", "Rejected: the fleet API takes weights from a directory."
    ),
    "load_lora_adapter": FleetRoute("POST", "Rejected: spec.adapters names a fleet's adapters."),
    "v1/unload_lora_adapter": FleetRoute("POST", "Rejected, as load_lora_adapter."),
}
"""What prime-rl's own client calls, below ``/fleets/NAMESPACE/NAME`` itself."""


def label_of(name: str) -> str:
    """Return the name of a classic route in metrics."""
    return "classic." + name.replace("/", ".")
