"""Sends the sidecar's logs to stdout, in the form that all of rlfleet writes.

No line holds a secret or a prompt.
"""

import logging
import sys

from rlfleet_contract.json_lines import JsonLines


def configure(level: str, **everywhere: str) -> None:
    """Send all that is logged in this process to stdout as JSON lines.

    ``everywhere``: the fields of each line; those that are empty are left out.
    """
    known = {name: value for name, value in everywhere.items() if value}
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines(**known))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # httpx logs each request at INFO, the polls among them.
    logging.getLogger("httpx").setLevel(logging.WARNING)
