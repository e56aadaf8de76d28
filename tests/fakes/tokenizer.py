"""A tokenizer, a chat template, and what vLLM answers with them on its tokenizing routes.

Bytes and a few words are tokens, so that a text can be cut in several ways and a character
into parts, as with the tokenizers of real models. Words that vLLM refuses a request with
are not imitated: the extension adds to them nothing of its own.
"""

from collections.abc import Sequence
from itertools import chain
from types import SimpleNamespace
from typing import Any

from rlfleet_engine.vllm.served import ServedVocabulary
from tests.fakes.prefixes import MAX_MODEL_LEN

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
WORDS = ("one", "two", "three", "four", "user", "assistant", " two", " three", " four")
END = SPECIALS.index("<|im_end|>")
_PLAIN = [*range(33, 127), *range(161, 173), *range(174, 256)]
_ODD = [byte for byte in range(256) if byte not in _PLAIN]
_LETTERS = {byte: chr(byte) for byte in _PLAIN} | {
    byte: chr(256 + place) for place, byte in enumerate(_ODD)
}
"""GPT-2's: each byte has a character of its own."""
_TOKENS = [
    *(special.encode() for special in SPECIALS),
    *(bytes([byte]) for byte in range(256)),
    *(word.encode() for word in WORDS),
]
_IDS = {token: place for place, token in enumerate(_TOKENS)}
_LONGEST = max(map(len, _TOKENS))

Reply = tuple[int, dict[str, Any]]


class Tokenizer:
    """As vLLM's serving objects have one."""

    max_token_id = len(_TOKENS) - 1

    def encode(self, text: str) -> list[int]:
        """Take the longest token first."""
        rest, ids = text.encode(), []
        while rest:
            token = next(rest[:size] for size in range(_LONGEST, 0, -1) if rest[:size] in _IDS)
            ids.append(_IDS[token])
            rest = rest[len(token) :]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Pass over what has no token, as real ones do."""
        known = (one for one in ids if one <= self.max_token_id)
        return b"".join(_TOKENS[one] for one in known).decode(errors="replace")

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        return ["".join(map(_LETTERS.__getitem__, _TOKENS[one])) for one in ids]


TOKENIZER = Tokenizer()


class Serving:
    """What the extension reads of vLLM's serving objects."""

    def __init__(self, vocabulary: int) -> None:
        self.renderer = SimpleNamespace(
            get_tokenizer=lambda: TOKENIZER, get_eos_token_id=lambda: END
        )
        self.model_config = SimpleNamespace(
            max_model_len=MAX_MODEL_LEN,
            get_vocab_size=lambda: vocabulary,
            try_get_generation_config=lambda: {"eos_token_id": [END, 0]},
        )

    @property
    def application(self) -> SimpleNamespace:
        """What a request finds of vLLM's application."""
        return SimpleNamespace(state=SimpleNamespace(serving_tokenization=self))


VOCABULARY = ServedVocabulary(Serving(512))
"""Of a model with more ids than it has tokens."""


def rendered(body: dict[str, Any]) -> list[int]:
    """Render messages with the template of the demo's model, into ids."""
    turns = [f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in body["messages"]]
    text = "".join(turns)
    if body.get("continue_final_message"):
        text = text.removesuffix("<|im_end|>\n")
    elif body.get("add_generation_prompt", True):
        text += "<|im_start|>assistant\n"
    return TOKENIZER.encode(text)


def tokenize(body: dict[str, Any]) -> Reply:
    """Answer /tokenize; messages go first, and what is unknown is passed over."""
    if body.get("model", "fake") != "fake":
        return _not_found(body["model"])
    if "messages" not in body and not isinstance(body.get("prompt"), str):
        return _malformed("body.prompt", "body.messages")
    ids = rendered(body) if "messages" in body else TOKENIZER.encode(body["prompt"])
    wants = body.get("return_token_strs")
    strings = TOKENIZER.convert_ids_to_tokens(ids) if wants else None
    told = {"count": len(ids), "max_model_len": MAX_MODEL_LEN, "tokens": ids}
    return 200, told | {"token_strs": strings}


def render(body: dict[str, Any]) -> Reply:
    """Answer with what vLLM would compute for a chat completion."""
    return 200, {"token_ids": rendered(body)}


def detokenize(body: dict[str, Any]) -> Reply:
    """Answer /detokenize."""
    ids = body.get("tokens")
    if not isinstance(ids, list) or any(type(one) is not int or one < 0 for one in ids):
        return _malformed("body.tokens")
    return 200, {"prompt": TOKENIZER.decode(ids)}


def spelled(text: str) -> list[int]:
    """Cut a text into bytes, as no tokenizer would."""
    return list(chain.from_iterable(TOKENIZER.encode(chr(byte)) for byte in text.encode("ascii")))


def _malformed(*places: str) -> Reply:
    message = f"{len(places)} validation errors: {', '.join(places)}"
    return 400, _error(400, "Bad Request", message, places[0])


def _not_found(model: object) -> Reply:
    message = f"The model `{model}` does not exist. Valid aliases: fake."
    return 404, _error(404, "NotFoundError", message, "model")


def _error(code: int, kind: str, message: str, param: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
