"""Make a tiny random Qwen3 and checkpoints of it, in the form that trainers write them.

Runs inside a pod of the worker image, where torch and transformers are. A step's
directory holds safetensors and, written last, the marker that says it is complete.
Idempotent: what is complete is left alone.
"""

import argparse
import shutil
from pathlib import Path

MARKER = "STABLE"
_WIDE = 512
SENTENCES = [
    "the quick brown fox jumps over the lazy dog",
    "a policy learns from rewards and a value function estimates how good a state is",
    "gradient descent walks downhill while the learning rate decides the stride",
    "one two three four five six seven eight nine ten eleven twelve",
]


def main() -> None:
    """Write the model and its steps below one directory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--steps", type=int, default=4, help="number of steps: step-0, step-1, ...")
    parser.add_argument("--hidden", type=int, default=64, help="hidden size")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--name", default="qwen", help="the model's directory below models/")
    parser.add_argument("--prefix", default="step-", help="prefix of a version's name")
    options = parser.parse_args()
    model = options.root / "models" / options.name
    if not (model / MARKER).exists():
        write_model(model, options.hidden, options.layers)
    for step in range(options.steps):
        write_step(options.root / "weights" / f"{options.prefix}{step}", model, seed=step + 1)


def write_model(directory: Path, hidden: int, layers: int) -> None:
    """Write tokenizer, config and weights: what an engine boots with."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen3Config

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1024, special_tokens=specials, initial_alphabet=alphabet
    )
    inner.train_from_iterator(SENTENCES * 8, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    config = Qwen3Config(
        vocab_size=1024,
        hidden_size=hidden,
        intermediate_size=hidden * 3,
        num_hidden_layers=layers,
        num_attention_heads=max(4, hidden // 64),
        num_key_value_heads=2,
        # vLLM on CPU refuses smaller heads.
        head_dim=64,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        # Wide enough that different seeds answer differently.
        initializer_range=0.2 if hidden < _WIDE else 0.02,
    )
    tokenizer.save_pretrained(directory)
    _save(config, directory, seed=0)
    _complete(directory)
    print(f"wrote {directory}", flush=True)


def write_step(directory: Path, model: Path, seed: int) -> None:
    """Write one step: weights only, as trainers do."""
    from transformers import Qwen3Config

    if (directory / MARKER).exists():
        print(f"found {directory}", flush=True)
        return
    shutil.rmtree(directory, ignore_errors=True)
    _save(Qwen3Config.from_pretrained(model), directory, seed)
    for path in directory.glob("*.json"):
        if not path.name.endswith(".index.json"):
            path.unlink()
    _complete(directory)
    print(f"wrote {directory}", flush=True)


def _save(config: object, directory: Path, seed: int) -> None:
    import torch
    from transformers import Qwen3ForCausalLM

    torch.manual_seed(seed)
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(directory)


def _complete(directory: Path) -> None:
    """Let every user read the files (save_pretrained writes mode 0600), then mark the end."""
    for path in directory.iterdir():
        path.chmod(0o644)
    directory.chmod(0o755)
    (directory / MARKER).touch()


if __name__ == "__main__":
    main()
