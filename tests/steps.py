"""What a step of a change does to a worker's state, if it does not fail."""

from rlfleet_contract.models import Verb
from rlfleet_sidecar.state.stage_machine import Event

EVENTS = {
    Verb.PAUSE: (Event.PAUSING,),
    Verb.FLUSH: (),
    Verb.RELOAD: (Event.RELOADING, Event.RELOADED),
    Verb.VERIFY: (Event.PROVED,),
    Verb.RESUME: (Event.OPENED,),
}
