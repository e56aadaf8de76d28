"""What vLLM knows of each model's class, found out once for an image instead of at every start.

vLLM imports itself in a further process to ask a model's class what it supports, and keeps the
answer in its cache, with a hash of the class's file. The cache of a new pod is empty. On two cores
the question takes a quarter of the start of a small model. So Dockerfile.worker asks about all
models, in one process, and each start copies the answers to where vLLM looks for them. vLLM
compares the hashes, so an answer about another release's file is never used.

    VLLM_CACHE_ROOT=/opt/rlfleet-vllm-cache python3 -m rlfleet_engine.vllm.model_infos
"""

import shutil
import sys
from pathlib import Path
from typing import Any

IN_IMAGE = Path("/opt/rlfleet-vllm-cache/modelinfos")
IN_CACHE = Path("~/.cache/vllm/modelinfos")
"""Where vLLM looks, unless a variable names another folder (its envs.py)."""


def bring(kept: Path = IN_IMAGE, cache: Path = IN_CACHE) -> None:
    """Copy the answers from one folder to another that is not there yet.

    Without them vLLM asks by itself, so a folder that cannot be written is no error.
    """
    cache = cache.expanduser()
    if not kept.is_dir() or cache.exists():
        return
    try:
        shutil.copytree(kept, cache)
    except OSError as error:
        # The first of what may be an error for each file.
        sys.stderr.write(f"vLLM's cache has no model infos: {error!s:.300}\n")


def ask() -> str:
    """Have vLLM ask every model's class; return what came of it, for the log of the build."""
    from vllm.model_executor.models import registry  # noqa: PLC0415 - a start does without
    from vllm.platforms import current_platform  # noqa: PLC0415

    if current_platform.is_unspecified():
        # What a class supports may depend on the device.
        return "none: this machine has no device that this vLLM is for"
    if not hasattr(registry, "_run_in_subprocess"):
        return "none: this release of vLLM asks in another way"
    # Here nothing else runs that an import could disturb.
    registry._run_in_subprocess = lambda question: question()
    asked = [_is_answered(model) for model in registry.ModelRegistry.models.values()]
    for answer in IN_IMAGE.iterdir():
        # vLLM writes for its own user; an engine is another one.
        answer.chmod(0o644)
    return f"{sum(asked)} of {len(asked)} models"


def _is_answered(model: Any) -> bool:
    try:
        model.inspect_model_cls()
    except Exception:  # noqa: BLE001 - an optional package of this one model is missing
        return False
    return True


def main() -> None:
    """Ask for an image; fails never, because an image without the answers works as well."""
    try:
        told = ask()
    except Exception as error:  # noqa: BLE001 - such as a library of the GPU's driver
        told = f"none: {error!r}"
    sys.stdout.write(f"model infos: {told}\n")


if __name__ == "__main__":
    main()
