"""Runs the sidecar (``python -m rlfleet_sidecar``), configured by RLFLEET_* variables."""

import argparse
import os
import sys
from collections.abc import Sequence

import uvicorn

from rlfleet_contract import __version__
from rlfleet_contract.settings import SettingsError
from rlfleet_contract.tls import serving_context
from rlfleet_sidecar import json_logs
from rlfleet_sidecar.app import create_app
from rlfleet_sidecar.http.connection_limit import KEEP_ALIVE_S, protocol
from rlfleet_sidecar.settings import SidecarSettings

_MAX_HEADER_BYTES = 16 * 1024
_GRACE_S = 5
"""How long open connections may take to end; a command under way has its own timeout."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM; a command under way ends first."""
    parser = argparse.ArgumentParser(
        prog="rlfleet_sidecar",
        description=__doc__,
        epilog=f"variables:\n{SidecarSettings.variables()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rlfleet {__version__}")
    parser.add_argument("--log-level", default="INFO", help="DEBUG, INFO, WARNING or ERROR")
    options = parser.parse_args(arguments)
    try:
        settings = SidecarSettings.load(os.environ)  # noqa: TID251 - the one reader
        folder = settings.tls_dir
        context = None if folder is None else serving_context(folder)
    except (SettingsError, OSError) as error:
        parser.exit(2, f"rlfleet_sidecar: {error}\n")
    json_logs.configure(options.log_level, **settings.identity())
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
        http=protocol(),
        timeout_graceful_shutdown=_GRACE_S,
        ssl_context_factory=None if context is None else lambda *_: context,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
