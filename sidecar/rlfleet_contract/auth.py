"""Which token a request carries in its Authorization header, and where a fleet's tokens are.

Pure; it grants no access.

A bearer's token, or the password of ``Basic``: clients that can set no header take that in
the URL (``http://rl:TOKEN@host``). It must stay true that an unreadable header gives no token.
"""

from base64 import b64decode

TOKEN_KEY = "token"  # noqa: S105 - a key of the fleet's Secret
"""The token to send."""
ALSO_ACCEPTED = ("next", "previous")
"""Keys of the other tokens that are accepted, each only during a part of a rotation."""
REVISION_KEY = "revision"
"""Changes with each step of a rotation, so that workers can report which step they know."""


def token_of(authorization: str | None) -> str:
    """Return the token in a header; empty if there is none."""
    scheme, _, given = (authorization or "").partition(" ")
    match scheme.lower():
        case "bearer":
            return given.strip()
        case "basic":
            return _password(given.strip())
        case _:
            return ""


def _password(credentials: str) -> str:
    try:
        decoded = b64decode(credentials, validate=True)
    except ValueError:
        return ""
    # Servers decode headers as latin-1: every byte is a character.
    return decoded.decode("latin-1").partition(":")[2].strip()
