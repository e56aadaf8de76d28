"""Run the example's trainer, and keep a copy of what it hands to its publisher.

Runs in the trainer's pod: kept.py TRAINER_FILE ARGUMENT ... The copies are whole versions that
no code of rlfleet has encoded, so the reference does not depend on its deltas.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from safetensors.torch import save_file

from rlfleet.publish import Publication, Publisher

KEPT = Path("/data/kept")


class KeepingPublisher(Publisher):
    """Saves the tensors of each version under its name."""

    def publish(self, source: Any, *, full: bool = False) -> Publication:
        """Save them before they are published: then nothing can have touched them."""
        tensors = dict(source)
        KEPT.mkdir(exist_ok=True)
        unnamed = KEPT / "next"
        save_file(tensors, unnamed)
        found = super().publish(tensors, full=full)
        unnamed.rename(KEPT / f"{found.name}.safetensors")
        return found


def main() -> None:
    """Run the trainer with the other publisher."""
    _, file, *arguments = sys.argv
    trainer = _loaded(file)
    vars(trainer)["Publisher"] = KeepingPublisher
    sys.argv = [file, *arguments]
    trainer.main()


def _loaded(file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("trainer", file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
