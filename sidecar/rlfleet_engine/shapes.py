"""Which routes have a shape that vLLM has not: one line for each."""

from collections.abc import Mapping

from rlfleet_engine import chat, chat_prefix, finite, generate, responses, tokenizing
from rlfleet_engine.answers import Scope
from rlfleet_engine.fields import has_json
from rlfleet_engine.turn import Turn

TURNS: Mapping[str, Turn] = {
    chat.PATH: chat_prefix.turn,
    chat.TOKENS_PATH: chat.turn_tokens,
    finite.COMPLETIONS_PATH: finite.turn_completion,
    generate.PATH: generate.turn,
    responses.PATH: responses.turn,
    tokenizing.PATH: tokenizing.turn,
    tokenizing.BACK_PATH: tokenizing.turn_back,
}


def turn_of(scope: Scope, turns: Mapping[str, Turn]) -> Turn | None:
    """Return what turns this request; None if it is vLLM's alone."""
    turn = turns.get(scope["path"])
    return turn if turn is not None and has_json(scope) else None
