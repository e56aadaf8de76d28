"""What the fleet API offers, in the order of its documentation. Pure.

The server is put together from it, and docs/reference/http.md is written from it, so that
neither knows of a route that the other lacks.
"""

from typing import NamedTuple

from rlfleet_contract.schema import ContractRequest
from rlfleet_operator.core.trainer.models import UpdateWeights
from rlfleet_operator.core.trainer.pause_rules import PauseRequested


class Offer(NamedTuple):
    """One route below ``/fleets/NAMESPACE/NAME/v1/rl``."""

    method: str
    meaning: str
    takes: type[ContractRequest] | None = None
    """The fields of its body."""
    is_query: bool = False
    """Whether they may stand in the query as well."""


OFFERS = {
    "workers": Offer("GET", "List the workers as Dynamo's discovery does."),
    "state": Offer("GET", "Return the fleet and every worker, as their sidecars report now."),
    "update_weights": Offer(
        "POST", "Request a version, and answer when its rollout has ended.", UpdateWeights
    ),
    "pause": Offer("POST", "Pause every worker, or none.", PauseRequested, is_query=True),
    "resume": Offer(
        "POST", "Resume every worker with its proved version.", PauseRequested, is_query=True
    ),
    "flush_cache": Offer(
        "POST", "Empty the caches of every worker of a paused fleet.", PauseRequested, is_query=True
    ),
}

CLASSIC = {
    "health": Offer("GET", "Return whether every worker serves or is paused."),
    "v1/models": Offer("GET", "List the fleet's model."),
    "pause": Offer("POST", "Pause every worker that takes traffic.", PauseRequested, is_query=True),
    "update_weights": Offer("POST", "Request the version in `weight_dir`."),
    "resume": Offer("POST", "Resume every worker with its proved version."),
    "init_broadcaster": Offer("POST", "Rejected: the fleet API takes weights from a directory."),
    "load_lora_adapter": Offer("POST", "Rejected: spec.adapters names a fleet's adapters."),
    "v1/unload_lora_adapter": Offer("POST", "Rejected, as load_lora_adapter."),
}
"""What prime-rl's own client calls, below ``/fleets/NAMESPACE/NAME`` itself."""


def label_of(name: str) -> str:
    """Return the name of a classic route in metrics."""
    return "classic." + name.replace("/", ".")
