"""Sends the operator's logs to stderr, in the JSON format of all rlfleet components."""

import logging
import sys

from rlfleet_contract.json_lines import JsonLines

_QUIET = ("kopf.objects",)
"""Loggers of single events and requests, which would drown the operator's own lines."""


def configure(level: str) -> None:
    """Send every logger's lines to stderr as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
