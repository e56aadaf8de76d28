"""The messages between operator, sidecar and engine extension.

Standard library, pydantic and python-json-logger only: each side imports it, it imports none.
The package lies under ``sidecar/`` because the server owns its interface.
"""

__version__ = "0.2.0"
