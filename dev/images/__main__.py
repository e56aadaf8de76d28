"""Command line: make the current images and bring them into the cluster."""

from dev import steps
from dev.images import build


def main() -> None:
    """Make them."""
    build.make()


if __name__ == "__main__":
    steps.main(main)
