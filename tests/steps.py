"""What a step of a change does to a worker's state, if it does not fail."""

from rlfleet_contract.worker.commands import Verb
from rlfleet_sidecar.state.stage_machine import StageEvent

EVENTS = {
    Verb.PAUSE: (StageEvent.PAUSING,),
    Verb.FLUSH: (),
    Verb.RELOAD: (StageEvent.RELOADING, StageEvent.RELOADED),
    Verb.VERIFY: (StageEvent.PROVED,),
    Verb.RESUME: (StageEvent.OPENED,),
}
