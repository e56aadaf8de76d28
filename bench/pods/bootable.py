"""Make directories that vLLM can be started from: each step's weights, the model's rest.

Runs in a pod of the worker image. It is how a version is rolled out without rlfleet:
as another --model.
"""

import argparse
import shutil
from pathlib import Path


def main() -> None:
    """Write <root>/bootable/<version> for each version."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("model", help="the model's directory below models/")
    parser.add_argument("versions", nargs="+")
    options = parser.parse_args()
    for version in options.versions:
        target = options.root / "bootable" / version
        shutil.rmtree(target, ignore_errors=True)
        no_weights = shutil.ignore_patterns("*.safetensors*")
        shutil.copytree(options.root / "models" / options.model, target, ignore=no_weights)
        for file in (options.root / "weights" / version).glob("*.safetensors*"):
            shutil.copy(file, target / file.name)


if __name__ == "__main__":
    main()
