"""Turns obstore's errors into problems. Pure.

A store's reply to a rejected request may quote the session token. So no message of a store is
passed on: only its status, and its code if that is one word.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.stores.url import StoreUrl

_STATUS = re.compile(r"status code: (\d{3})\b")
_CODE = re.compile(r"<Code>([A-Za-z]{1,64})</Code>")
_IDENTITY = ("169.254.169.254", "metadata.google.internal", "169.254.170.2", "AssumeRole")
_BROKEN = ("UnexpectedEof", "Interrupted")
_DENIED = frozenset({"PermissionDeniedError", "UnauthenticatedError"})
_CREDENTIALS = "check the credentials in weights.source.credentialsSecret"


class _Cause(NamedTuple):
    """What a text in an error means."""

    texts: tuple[str, ...]
    what: str
    action: str


_CAUSES = (
    _Cause(("dns error",), "its host name is not known", "correct weights.source.endpoint"),
    _Cause(
        ("certificate", "UnknownIssuer", "InvalidMessage"),
        "TLS failed",
        "put the store's CA as ca.crt into weights.source.credentialsSecret, or correct the"
        " endpoint",
    ),
    _Cause(("TimedOut", "kind: Timeout"), "it did not answer in time", "check the store"),
    _Cause(
        ("kind: Connect",),
        "it is not reachable",
        "check the store, and weights.source.endpoint",
    ),
    _Cause(
        ("NotPartial", "NotSupportedError"),
        "its server ignores ranges",
        "serve it by a server that supports them",
    ),
    _Cause(("BareRedirect",), "it is in another region", "set weights.source.region"),
)


class StoreFailedError(SidecarError):
    """A store that does not answer, or admits no read: this says nothing about a version."""


class BrokenReplyError(StoreFailedError):
    """A reply that began and did not end; obstore continues those of reads, not of listings."""


class ReplacedError(Exception):
    """The object is no longer the one that was listed."""


@contextmanager
def named(place: StoreUrl) -> Iterator[None]:
    """Turn errors of obstore inside into problems about this place."""
    try:
        yield
    except (SidecarError, ReplacedError):
        raise
    except FileNotFoundError as error:
        raise _absent(place, str(error)) from None
    except Exception as error:
        if not _is_of_obstore(error):
            raise
        if type(error).__name__ == "PreconditionError":
            raise ReplacedError from None
        # Not `from error`: its text may hold a token.
        raise problem(place, type(error).__name__, str(error)) from None


def problem(place: StoreUrl, kind: str, text: str) -> SidecarError:
    """Return the problem for an error of obstore."""
    found, code = _STATUS.search(text), _CODE.search(text)
    if code is not None and code[1] == "NoSuchBucket":
        return _no_bucket(place)
    if found is None and any(word in text for word in _BROKEN):
        return BrokenReplyError(
            Code.CHECKPOINT_UNREADABLE,
            f"failed to read {place}: the connection broke; check the store",
        )
    reply = " ".join(match[1] for match in (found, code) if match)
    what, action = _reason(place, kind, text, reply)
    message = f"failed to read {place}: {what}; {action}"
    return StoreFailedError(Code.CHECKPOINT_UNREADABLE, message)


def _reason(place: StoreUrl, kind: str, text: str, reply: str) -> tuple[str, str]:
    if any(word in text for word in _IDENTITY):
        return (
            "no credentials found",
            "set weights.source.credentialsSecret or anonymous, or give the pod an identity",
        )
    if kind in _DENIED or reply.startswith(("401", "403", "400 Expired")):
        return f"access denied ({reply or kind})", _CREDENTIALS
    if reply.startswith(("5", "429")):
        return f"the store answers {reply}", "wait, or check the store"
    if reply:
        return f"the store answers {reply}", "correct weights.source"
    for cause in _CAUSES:
        if any(word in f"{kind} {text}" for word in cause.texts):
            return cause.what, cause.action
    return f"{kind} of obstore", f"check that {place.bucket} answers"


def _absent(place: StoreUrl, text: str) -> SidecarError:
    code = _CODE.search(text)
    if code is not None and code[1] == "NoSuchBucket":
        return _no_bucket(place)
    return SidecarError(Code.CHECKPOINT_INVALID, f"{place} does not exist; write it")


def _no_bucket(place: StoreUrl) -> SidecarError:
    return StoreFailedError(
        Code.CHECKPOINT_UNREADABLE,
        f"{place.bucket} does not exist; create the bucket, or correct weights.source",
    )


def _is_of_obstore(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] == "obstore" or isinstance(error, ValueError)
