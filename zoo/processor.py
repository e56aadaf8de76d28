"""Tokenizer and processor of a tiny multimodal model: vLLM asks for both when it boots."""

from pathlib import Path

import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

PICTURES = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
_FIRST = 1000
"""Their ids follow on this one, as models.yaml says."""
_LINES = 4


def write(at: Path, family: str) -> None:
    """Write what goes with a model of a family: gemma3, qwen2_vl, qwen2_5_vl or another Qwen."""
    tokenizer = _tokenizer(family)
    if family == "gemma3":
        images = transformers.Gemma3ImageProcessor()
        made = transformers.Gemma3Processor(images, tokenizer, image_seq_length=4)
    elif family == "qwen2_vl":
        images, videos = transformers.Qwen2VLImageProcessor(), transformers.Qwen2VLVideoProcessor()
        made = transformers.Qwen2VLProcessor(images, tokenizer, videos)
    elif family == "qwen2_5_vl":
        images, videos = transformers.Qwen2VLImageProcessor(), transformers.Qwen2VLVideoProcessor()
        made = transformers.Qwen2_5_VLProcessor(images, tokenizer, videos)
    else:
        images, videos = transformers.Qwen2VLImageProcessor(), transformers.Qwen3VLVideoProcessor()
        made = transformers.Qwen3VLProcessor(images, tokenizer, videos)
    made.save_pretrained(at)


def _tokenizer(family: str) -> transformers.PreTrainedTokenizerFast:
    lines = {"\n" * count: 3 + count for count in range(1, _LINES + 1)}
    words = {f"w{n}": n for n in range(_FIRST) if n not in lines.values()}
    pictures = {word: _FIRST + place for place, word in enumerate(PICTURES)}
    named = dict(zip(("image_token", "boi_token", "eoi_token"), PICTURES, strict=False))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words | lines | pictures, unk_token="w3")),
        bos_token="w1",
        eos_token="w2",
        unk_token="w3",
        pad_token="w0",
        additional_special_tokens=list(PICTURES),
        extra_special_tokens=named if family == "gemma3" else {},
    )
