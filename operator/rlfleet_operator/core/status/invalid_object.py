"""What status says of a fleet whose object cannot be parsed."""

from pydantic import ValidationError

REASON = "InvalidObject"
"""The reason of a fleet whose object cannot be parsed."""


def message(error: ValidationError) -> str:
    """Return which field of a fleet cannot be parsed, and what to do."""
    part = error.title.removeprefix("Fleet").lower()
    first, count = error.errors(include_url=False)[0], error.error_count()
    field = ".".join([part, *map(str, first["loc"])])
    others = f" (errors in all: {count})" if count > 1 else ""
    action = (
        "write a valid value"
        if part == "spec"
        else "upgrade the operator if a newer one wrote it, or remove the field with"
        " kubectl edit --subresource=status"
    )
    expected = first["msg"].removeprefix("Value error, ")
    got = f"{expected}, got {first['input']!r:.100}{others}"
    return f"{field}: {got}; {action} (the fleet is not reconciled until then)"
