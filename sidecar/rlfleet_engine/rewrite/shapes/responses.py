"""/v1/responses: nothing that is computed outside of the request that returns it.

With ``background``, vLLM goes on computing a response after its request was answered, and
stores it. Stored responses are not returned (rlfleet_engine.reply.stored_responses), so such
a request is refused at once, with the way out.
"""

from rlfleet_engine.json_body import FieldError, parsed
from rlfleet_engine.rewrite.rewrite import Ask

PATH = "/v1/responses"


async def turn(body: bytes, _ask: Ask) -> None:
    """Refuse a response in the background. Raises FieldError."""
    if (parsed(body) or {}).get("background") not in (None, False):
        raise FieldError(
            "background",
            "must be false: a change of weights would go unnoticed between the request and the"
            " look at its response; leave it out, and set stream to read the response as it comes",
        )
