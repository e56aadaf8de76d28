"""/v1/responses: rejects responses that are computed after the reply to their request.

With ``background`` vLLM replies at once, computes the response later and stores it. Stored
responses are not returned (rlfleet_engine.reply.stored_responses), so such a request is rejected.
"""

from rlfleet_engine.json_body import FieldError, parsed
from rlfleet_engine.rewrite.rewrite import InnerCall

PATH = "/v1/responses"


async def turn(body: bytes, _ask: InnerCall) -> None:
    """Reject a response in the background. Raises FieldError."""
    if (parsed(body) or {}).get("background") not in (None, False):
        raise FieldError(
            "background",
            "must be false: weights may change before the response is read; use stream instead",
        )
