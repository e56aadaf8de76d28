"""Which token a request brings, by its Authorization header. Pure; it decides about nobody.

A bearer's token, or the password of ``Basic``: clients that can set no header take that in
the address (``http://rl:TOKEN@host``). It must stay true that what cannot be read is no token.
"""

from base64 import b64decode


def token_of(authorization: str | None) -> str:
    """Return the token that a header gives; empty if it gives none."""
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
    # As servers read headers: every byte is a character.
    return decoded.decode("latin-1").partition(":")[2].strip()
