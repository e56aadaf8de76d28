"""Compute log probabilities of token samples under many versions, by plain vLLM.

Runs in a pod of the worker's image, without rlfleet's extension: reads what to compute as JSON
from standard input, and prints a JSON line for each version. The engine boots on the last
version; each version is then installed by vLLM's own reload, the last one too. Its two lines are
equal only if reloads do what a boot does.
"""

import json
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from safetensors.torch import load_file
from vllm import LLM, SamplingParams

BOOTED = "boot"
_BOOT_S, _VERSION_S = 400, 120
_DIGITS = 6
Sample = tuple[list[int], list[int]]
"""A prompt's tokens, and those of a reply."""


@contextmanager
def limited(seconds: int, what: str) -> Iterator[None]:
    """End with an error when the time is over."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"{what} took more than {seconds} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def say(version: str, begun: float, logprobs: list[list[float]]) -> None:
    """Print the line of one version."""
    took = round(time.monotonic() - begun, 2)
    line = {"version": version, "seconds": took, "logprobs": logprobs}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def booted(model: Path, weights: Path, scratch: Path) -> LLM:
    """Boot on a version: the model's config with its weights."""
    scratch.mkdir(parents=True)
    for path in model.glob("*.json"):
        shutil.copy(path, scratch)
    shutil.copy(weights, scratch / "model.safetensors")
    return LLM(
        model=str(scratch),
        dtype="bfloat16",
        enforce_eager=True,
        enable_prefix_caching=False,
        max_model_len=1024,
        skip_tokenizer_init=True,
        disable_log_stats=True,
    )


def computed(engine: LLM, samples: list[Sample]) -> list[list[float]]:
    """Return the log probabilities of each reply's tokens after its prompt."""
    wanted = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0, detokenize=False)
    inputs: Any = [{"prompt_token_ids": [*prompt, *reply]} for prompt, reply in samples]
    found = []
    for told, (prompt, reply) in zip(
        engine.generate(inputs, wanted, use_tqdm=False), samples, strict=True
    ):
        entries = told.prompt_logprobs[len(prompt) :]
        pairs = zip(entries, reply, strict=True)
        found.append([round(entry[token].logprob, _DIGITS) for entry, token in pairs])
    return found


def main() -> None:
    """Compute all versions, the last one twice."""
    task = json.loads(sys.stdin.read())
    samples = [(list(prompt), list(reply)) for prompt, reply in task["samples"]]
    files = {version: Path(path) for version, path in task["versions"].items()}
    begun = time.monotonic()
    with limited(_BOOT_S, "the boot"):
        last = list(files.values())[-1]
        engine = booted(Path(task["model"]), last, Path(task["scratch"]))
        say(BOOTED, begun, computed(engine, samples))
    for version, path in files.items():
        begun = time.monotonic()
        with limited(_VERSION_S, version):
            tensors = list(load_file(path).items())
            engine.collective_rpc("reload_weights", kwargs={"weights_iterator": tensors})
            say(version, begun, computed(engine, samples))


if __name__ == "__main__":
    main()
