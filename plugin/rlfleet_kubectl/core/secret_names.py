"""Which names of variables, flags, headers and fields mark their value as secret."""

import re
from functools import lru_cache

WORDS = (
    *("token", "secret", "passw", "passphrase", "credential", "key", "auth", "pass", "pwd"),
    *("signature", "cookie", "sig", "bearer", "dsn"),
)
"""One of these is in each such name that a text may assign to."""
_STRONG = (
    r"token|secret|passw(?:or)?d|passphrase|credential|api[-_.]?key|access[-_.]?key"
    r"|private[-_.]?key"
)
_WEAK = r"authorization|auth|pass|pwd|signature|cookie|sig|bearer|dsn|key"
"""Count only as words of their own: `key`, and not `monkey`."""
_SHORT = r"jwt|pat|sas"
"""As these, of variables and fields: in a text they begin too many other words."""
_END = r"s?(?:$|[-_./0-9]|(?-i:(?=[A-Z])))"
_NAME = re.compile(
    rf"(?:{_STRONG}|(?:^|[-_./]|(?-i:(?<=[a-z])(?=[A-Z])))(?:{_WEAK}|{_SHORT})){_END}",
    re.IGNORECASE,
)
_OF_ACCESS = "".join(rf"(?<!{word})(?<!{word}[-_.])" for word in ("api", "auth", "access"))
_COUNTS = (
    r"(?<![A-Za-z])(?:(?:max|num)[-_]\w*|(?-i:(?:max|num)[A-Z]\w*)|expiration\w*)"
    r"(?<!key)(?<!token)(?<!secret)(?<!password)"
)
"""max_tokens and numKeyValueHeads, but no MINIMAX_API_KEY, MAXMIND_LICENSE_KEY, MAX_API_KEY."""
_HARMLESS = re.compile(
    rf"(?:name|names|ref|path|file|dir|mount|seconds|ttl|optional|type|limit|{_OF_ACCESS}tokens"
    rf"|policy|class|count|{_COUNTS}|length)$",
    re.IGNORECASE,
)
"""How names end whose value only says where a secret is, or counts tokens of a model."""
_PLAIN_KEYS = frozenset(
    {"key", "automountServiceAccountToken", "topologyKey", "configMapKeyRef", "secretKeyRef"}
)
"""Fields of Kubernetes whose values name a key, and are none."""


@lru_cache(4096)
def is_secret_name(name: str) -> bool:
    """Return whether a variable, flag, header or field of this name holds a secret."""
    bare = name.lstrip("-")
    return bare not in _PLAIN_KEYS and bool(_NAME.search(bare)) and not _HARMLESS.search(bare)
