"""Make a release of the tree that holds this file: python -m dev.release.tree FOLDER COMMIT EPOCH.

Not for people: `python -m dev.release` runs it in a clone of the commit.
"""

import argparse
from pathlib import Path

from dev import steps
from dev.release import contents, signing


def main() -> None:
    """Fill the folder."""
    parser = argparse.ArgumentParser(prog="python -m dev.release.tree", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("commit")
    parser.add_argument("epoch", type=int)
    parser.add_argument("--key", type=Path)
    parser.add_argument("--no-images", action="store_true")
    given = parser.parse_args()
    key = signing.Key.load(given.key) if given.key else None
    plan = contents.Plan(given.epoch, given.commit, key, with_images=not given.no_images)
    steps.run(contents.make_steps(given.folder, plan))


if __name__ == "__main__":
    steps.main(main)
