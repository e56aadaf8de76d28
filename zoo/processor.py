"""Tokenizer and processor of a tiny multimodal model: vLLM asks for both when it boots."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

_PARTS = {
    "images": "image_processor",
    "videos": "video_processor",
    "sounds": "feature_extractor",
}
_FIRST = 1000
"""The ids of a model's own tokens follow on this one, as models.yaml says."""
_LINES = 4


def write(at: Path, wanted: Mapping[str, Any]) -> None:
    """Write what a model wants: a class of transformers, those of its parts, and its tokens.

    Without a class vLLM has the processor, and wants a tokenizer alone.
    """
    parts = {name: _made(wanted[part]) for part, name in _PARTS.items() if part in wanted}
    tokenizer = _tokenizer(wanted.get("tokens", ()), wanted.get("named", {}))
    if "config" not in wanted:
        tokenizer.save_pretrained(at)
        return
    made = getattr(transformers, wanted["config"])(
        tokenizer=tokenizer, **parts, **wanted.get("with", {})
    )
    made.save_pretrained(at)


def _made(name: str) -> Any:
    return getattr(transformers, name)()


def _tokenizer(
    own: Sequence[str], named: Mapping[str, str]
) -> transformers.PreTrainedTokenizerFast:
    lines = {"\n" * count: 3 + count for count in range(1, _LINES + 1)}
    words = {f"w{n}": n for n in range(_FIRST) if n not in lines.values()}
    words |= lines | {word: _FIRST + place for place, word in enumerate(own)}
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="w3")),
        bos_token="w1",
        eos_token="w2",
        unk_token="w3",
        pad_token="w0",
        extra_special_tokens=dict(named),
    )
    made.add_tokens(list(own), special_tokens=True)
    return made
