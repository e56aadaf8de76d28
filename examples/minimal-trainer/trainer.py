"""Train a policy by replies of a fleet, and change the fleet's weights after each step.

The loop of reinforcement learning: publish, change, sample, learn. A toy: even ids are worth 1.
"""

import argparse

import httpx
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from rlfleet.fleet import SpecClient
from rlfleet.publish import Publisher

PROMPT = [11, 12, 13, 14]


def sampled(url: str, model: str, count: int) -> torch.Tensor:
    """Return the token ids of replies to one prompt."""
    body = {"model": model, "prompt": PROMPT, "n": count, "ignore_eos": True}
    body["return_token_ids"] = True  # 16 ids each
    reply = httpx.post(f"{url}/v1/completions", json=body, timeout=600).raise_for_status()
    return torch.tensor([choice["token_ids"] for choice in reply.json()["choices"]])


def learned(policy: PreTrainedModel, optimizer: torch.optim.Optimizer, ids: torch.Tensor) -> float:
    """Take a step of REINFORCE; return the mean reward."""
    rewards = (ids % 2 == 0).float()
    prompts = torch.tensor(PROMPT).expand(len(ids), -1)
    logits = policy(input_ids=torch.cat([prompts, ids], dim=1)).logits[:, len(PROMPT) - 1 : -1]
    chosen = logits.log_softmax(-1).gather(2, ids[:, :, None])[..., 0]
    optimizer.zero_grad()
    (-(rewards - rewards.mean()) * chosen).mean().backward()
    optimizer.step()
    return rewards.mean().item()


def main() -> None:
    """Do so many steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fleet", help="name of the fleet, in the namespace of this pod")
    parser.add_argument("engines", help="the fleet's Service, http://NAME:8000")
    parser.add_argument("model", help="directory of the model that the engines boot with")
    parser.add_argument("versions", help="directory above {version} in spec.weights.path")
    parser.add_argument("--name", default="qwen", help="spec.model.name")
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    policy = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    with Publisher(given.versions) as publisher, SpecClient(given.fleet) as fleet:
        for _ in range(given.steps):
            weights = {name: one.to(torch.bfloat16) for name, one in policy.state_dict().items()}
            version = publisher.publish(weights, full=True).name
            result = fleet.update_weights(version)  # patches it; returns when all have proved it
            reward = learned(policy, optimizer, sampled(given.engines, given.name, 64))
            print(f"{version} reward {reward:.2f}, {result.message}", flush=True)


if __name__ == "__main__":
    main()
