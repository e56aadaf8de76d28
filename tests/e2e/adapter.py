"""Write a random LoRA adapter of a Qwen3, as trainers write them; the marker comes last.

Runs in the trainer's pod, which has Python and nothing else:
adapter.py MODEL DIRECTORY SEED RANK
"""

import array
import json
import random
import struct
import sys
from pathlib import Path

SCALE = 0.5


def main() -> None:
    """Write the one that the command line names, over whatever is there."""
    model, directory = Path(sys.argv[1]), Path(sys.argv[2])
    seed, rank = int(sys.argv[3]), int(sys.argv[4])
    config = json.loads((model / "config.json").read_text())
    hidden, head = config["hidden_size"], config["head_dim"]
    outer = {
        "q_proj": config["num_attention_heads"] * head,
        "v_proj": config["num_key_value_heads"] * head,
    }
    shapes: dict[str, tuple[int, int]] = {}
    for layer in range(config["num_hidden_layers"]):
        for name, size in outer.items():
            module = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            shapes[f"{module}.lora_A.weight"] = (rank, hidden)
            shapes[f"{module}.lora_B.weight"] = (size, rank)
    directory.mkdir(exist_ok=True)
    (directory / "STABLE").unlink(missing_ok=True)
    draft = directory / "adapter_model.draft"
    draft.write_bytes(encoded(shapes, random.Random(seed)))  # noqa: S311 - weights, no secret
    draft.replace(directory / "adapter_model.safetensors")
    about = {"peft_type": "LORA", "r": rank, "lora_alpha": 8, "target_modules": list(outer)}
    (directory / "adapter_config.json").write_text(json.dumps(about))
    (directory / "STABLE").touch()


def encoded(shapes: dict[str, tuple[int, int]], chance: random.Random) -> bytes:
    """Return a safetensors file of normally distributed numbers."""
    header, data = {}, b""
    for name, (rows, columns) in shapes.items():
        numbers = array.array("f", (chance.gauss(0, SCALE) for _ in range(rows * columns)))
        end = len(data) + 4 * len(numbers)
        header[name] = {"dtype": "F32", "shape": [rows, columns], "data_offsets": [len(data), end]}
        data += numbers.tobytes()
    told = json.dumps(header).encode()
    told += b" " * (-len(told) % 8)
    return struct.pack("<Q", len(told)) + told + data


if __name__ == "__main__":
    main()
