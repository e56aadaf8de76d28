"""Which token a request carries in its Authorization header. Pure; it grants no access.

A bearer's token, or the password of ``Basic``: clients that can set no header take that in
the URL (``http://rl:TOKEN@host``). It must stay true that an unreadable header gives no token.
"""

from base64 import b64decode


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
