"""Sends the logs of the operator's process to stderr, in the form that all of rlfleet writes."""

import logging
import sys

from rlfleet_contract.json_lines import JsonLines

_QUIET = ("kopf.objects", "httpx")
"""They log each event and each request; our own lines log transitions."""


def configure(level: str) -> None:
    """Send all that is logged in this process to stderr as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
