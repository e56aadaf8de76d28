"""TRL's AsyncGRPO with a LoRA adapter, sampling from the fleet `trl` through its proxy."""

from datasets import Dataset, load_dataset
from peft import LoraConfig
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer
from trl.rewards import accuracy_reward


def questions() -> Dataset:
    """Return prompts and solutions of GSM8K."""
    found = load_dataset("openai/gsm8k", "main", split="train")
    return found.map(
        lambda row: {
            "prompt": [{"role": "user", "content": row["question"]}],
            "solution": row["answer"].split("####")[-1].strip(),
        },
        remove_columns=found.column_names,
    )


def main() -> None:
    """Train; the fleet's workers load each new adapter."""
    config = AsyncGRPOConfig(
        # On the volume of weights.path: adapters lie in /weights/run/.vllm_lora.
        output_dir="/weights/run",
        vllm_server_base_url="http://trl-proxy:8000",
        max_staleness=4,
        max_inflight_tasks=256,
        max_completion_length=1024,
        max_steps=200,
    )
    trainer = AsyncGRPOTrainer(
        model="Qwen/Qwen3-0.6B",
        args=config,
        train_dataset=questions(),
        reward_funcs=accuracy_reward,
        # One of the ranks that --max-lora-rank takes.
        peft_config=LoraConfig(r=32, lora_alpha=64, target_modules="all-linear"),
    )
    trainer.train()


if __name__ == "__main__":
    main()
