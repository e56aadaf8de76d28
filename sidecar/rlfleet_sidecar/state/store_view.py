"""What a worker found when it last looked at the store."""

from typing import NamedTuple

from rlfleet_contract.worker.problems import Problem
from rlfleet_contract.worker.report import Newest
from rlfleet_contract.worker.retention import Unneeded


class StoreView(NamedTuple):
    """Fields of the report; None while no operator asks."""

    newest: Newest | None = None
    look_failure: Problem | None = None
    unneeded: Unneeded | None = None
