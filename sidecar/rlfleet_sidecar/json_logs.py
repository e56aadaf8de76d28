"""Configures the sidecar's logs: JSON lines on stdout, without secrets or prompts."""

import logging
import sys

from rlfleet_contract.json_lines import JsonLines


def configure(level: str, **everywhere: str) -> None:
    """Configure logging; ``everywhere`` are the fields of each line, without empty ones."""
    known = {name: value for name, value in everywhere.items() if value}
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines(**known))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # httpx logs each request at INFO, even polls.
    logging.getLogger("httpx").setLevel(logging.WARNING)
