"""What operator, sidecar and engine extension exchange.

Standard library, pydantic and python-json-logger only: each side imports it, it imports none.
The package lies under ``sidecar/`` because the server owns its interface.
"""
