"""The operator with a defect: it cannot plan for a fleet whose status says so."""

from rlfleet_operator import __main__ as operator
from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.plan import Plan, plan
from rlfleet_operator.reconcile import reconciler

DEFECT = "defect"
"""The operation of the trainer's pause of which the defect comes."""


def _plan(world: World) -> Plan:
    pause = world.fleet.status.trainer_pause
    if pause is not None and pause.operation == DEFECT:
        raise LookupError("made by a test")
    return plan(world)


def main() -> int:
    """Run it."""
    vars(reconciler)["plan"] = _plan
    return operator.main()
