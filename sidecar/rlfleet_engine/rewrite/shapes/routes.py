"""The table of routes with a shape that vLLM lacks."""

from collections.abc import Mapping

from rlfleet_engine.rewrite import logprobs
from rlfleet_engine.rewrite.rewrite import Turn
from rlfleet_engine.rewrite.shapes import chat, chat_prefix, generate, responses, tokenize

TURNS: Mapping[str, Turn] = {
    chat.PATH: chat_prefix.turn,
    chat.TOKENS_PATH: chat.turn_tokens,
    logprobs.COMPLETIONS_PATH: logprobs.turn_completion,
    generate.PATH: generate.turn,
    responses.PATH: responses.turn,
    tokenize.PATH: tokenize.turn,
    tokenize.BACK_PATH: tokenize.turn_back,
}
