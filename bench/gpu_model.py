"""Random models of real sizes, for bench.gpu: python3 -m bench.gpu_model SEED SIZE DIRECTORY."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SIZES: Mapping[str, Mapping[str, Any]] = {
    "tiny": {
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": 2048,
    },
    "1.7b": {
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
    },
    "4b": {
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
    },
}
"""Dimensions of Qwen3's."""
_COMMON = {
    "tie_word_embeddings": True,
    "max_position_embeddings": 4096,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_SPREAD = 0.02
_FILE_BYTES = 2 << 30


def made(size: str, seeds: Mapping[Path, int]) -> None:
    """Make the models that are not there yet, in processes that leave no memory taken."""
    for directory, seed in seeds.items():
        if not (directory / "STABLE").exists():
            words = [sys.executable, "-m", "bench.gpu_model", str(seed), size, str(directory)]
            subprocess.run(words, check=True)


def main() -> None:
    """Write a model with a tokenizer that knows each token by its number."""
    seed, size, at = sys.argv[1:]
    folder = Path(at)
    folder.mkdir(parents=True, exist_ok=True)
    config = _config(size)
    config.save_pretrained(folder)
    index: dict[str, str] = {}
    for number, tensors in enumerate(_files(config, int(seed)), 1):
        name = f"model-{number:05}.safetensors"
        _save(tensors, folder / name)
        index |= dict.fromkeys(tensors, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    _write_tokenizer(folder, config.vocab_size)
    (folder / "STABLE").touch()


def _config(size: str) -> Any:
    from transformers import Qwen3Config  # noqa: PLC0415 - vLLM's, which few machines have

    config = Qwen3Config(**_COMMON, **SIZES[size], dtype="bfloat16")
    config.architectures = ["Qwen3ForCausalLM"]
    return config


def _files(config: Any, seed: int) -> Iterator[dict[str, Any]]:
    """Yield random tensors, as many as belong in a file."""
    import torch  # noqa: PLC0415
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dice = torch.Generator(device).manual_seed(seed)
    tensors: dict[str, Any] = {}
    for name, like in model.named_parameters():
        drawn = torch.randn(like.shape, generator=dice, device=device) * _SPREAD
        middle = 1 if "norm" in name else 0
        tensors[name] = (drawn + middle).to(torch.bfloat16).cpu()
        if sum(one.nbytes for one in tensors.values()) > _FILE_BYTES:
            yield tensors
            tensors = {}
    if tensors:
        yield tensors


def _save(tensors: dict[str, Any], path: Path) -> None:
    from safetensors.torch import save_file  # noqa: PLC0415

    save_file(tensors, path, {"format": "pt"})


def _write_tokenizer(folder: Path, size: int) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415

    words = {f"t{number}": number for number in range(size)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="t0"))  # noqa: S106 - a word
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "t0", "eos_token": "t2"}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))


if __name__ == "__main__":
    main()
