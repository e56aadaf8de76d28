"""Fine-tune a model, and publish a version after each few optimizer steps.

The optimizer works on float32 weights. In a few steps most of them move by less than bfloat16
can hold, so few of the published bfloat16 weights change, and each version is a small delta.
"""

import argparse
import time
from collections.abc import Iterator

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlfleet.publish import Options, Publisher

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def versions(path: str, count: int) -> Iterator[dict[str, torch.Tensor]]:
    """Yield the weights as engines load them, each time after a few optimizer steps."""
    tokenizer = AutoTokenizer.from_pretrained(path)
    policy = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    optimizer = torch.optim.SGD(policy.parameters(), lr=5e-3)
    for _ in range(count):
        # Toy data: the words in another order each time, so that there is always more to learn.
        words = [WORDS[place] for place in torch.randperm(len(WORDS))]
        batch = tokenizer(" ".join(words), return_tensors="pt")["input_ids"]
        for _ in range(4):
            optimizer.zero_grad()
            policy(input_ids=batch, labels=batch).loss.backward()
            optimizer.step()
        yield {name: tensor.to(torch.bfloat16) for name, tensor in policy.state_dict().items()}


def main() -> None:
    """Publish one version after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", help="s3://bucket/run, or a directory")
    parser.add_argument("model", help="directory of the model that the engines boot with")
    parser.add_argument("--steps", type=int, default=100, help="number of versions")
    parser.add_argument("--every", type=float, default=20, help="seconds from one to the next")
    options = parser.parse_args()
    # Without a base the first version is full; later ones are deltas, and each 25th is full.
    with Publisher(options.target, Options(anchor_every=25)) as publisher:
        for weights in versions(options.model, options.steps):
            begun = time.monotonic()
            found = publisher.publish(weights)
            kind = "full" if found.is_full else "delta"
            print(f"{found.name} {kind} {found.nbytes} of {found.total_nbytes} bytes", flush=True)
            time.sleep(max(0.0, begun + options.every - time.monotonic()))


if __name__ == "__main__":
    main()
