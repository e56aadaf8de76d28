"""What a store's refusal becomes: its cause and one action, and nothing secret."""

import pytest
from obstore import exceptions

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.stores.failures import BrokenReplyError, ReplacedError, named, problem
from rlfleet_sidecar.stores.url import StoreUrl

PLACE = StoreUrl.of("s3://b/run/v1/model.safetensors")
TOKEN = "FQoGZXIvYXdzE-the-session-token"


def reply(status: int, code: str) -> str:
    body = f"<Error><Code>{code}</Code><Token-0>{TOKEN}</Token-0></Error>"
    return (
        f"Error performing GET http://h in 4ms - returned non-2xx status code: {status} X: {body}"
    )


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("GenericError", reply(400, "ExpiredToken"), "access denied (400 ExpiredToken); check the"),
        ("PermissionDeniedError", reply(403, "AccessDenied"), "denied (403 AccessDenied); check"),
        ("GenericError", reply(403, "SignatureDoesNotMatch"), "denied (403 SignatureDoesNotMatch"),
        ("UnauthenticatedError", "status code: 401 Unauthorized", "access denied (401)"),
        ("GenericError", reply(503, "SlowDown"), "the store answers 503 SlowDown; wait"),
        ("GenericError", reply(429, "Throttled"), "the store answers 429 Throttled; wait"),
        ("GenericError", reply(418, "Teapot"), "answers 418 Teapot; correct weights.source"),
        ("GenericError", "kind: Connect, dns error", "host name is not known; correct"),
        ("GenericError", "kind: Connect, invalid peer certificate", "TLS failed; put the store"),
        ("GenericError", "kind: Connect, tcp connect error", "it is not reachable"),
        ("GenericError", "kind: Timeout, TimedOut", "it did not answer in time"),
        ("GenericError", "BareRedirect", "another region; set weights.source.region"),
        ("GenericError", "PUT http://169.254.169.254/latest: 403", "no credentials found; set"),
        ("GenericError", f"something about {TOKEN}", "GenericError of obstore; check that s3://b"),
    ],
)
def test_a_failure_names_object_cause_and_action(kind: str, text: str, words: str) -> None:
    found = problem(PLACE, kind, text)

    assert found.code is Code.CHECKPOINT_UNREADABLE
    assert found.message.startswith(f"failed to read {PLACE}: ")
    assert words in found.message
    assert TOKEN not in found.message


def test_an_error_of_obstore_is_named_without_its_text() -> None:
    with pytest.raises(SidecarError, match="403 ExpiredToken") as caught, named(PLACE):
        raise exceptions.PermissionDeniedError(reply(403, "ExpiredToken"))

    assert caught.value.__suppress_context__
    assert caught.value.__cause__ is None


def test_a_broken_reply_is_one_that_may_be_asked_again() -> None:
    with pytest.raises(BrokenReplyError), named(PLACE):
        raise exceptions.GenericError("kind: Interrupted, UnexpectedEof")


def test_another_object_and_none_differ() -> None:
    with pytest.raises(ReplacedError), named(PLACE):
        raise exceptions.PreconditionError(reply(412, "PreconditionFailed"))
    with pytest.raises(SidecarError) as absent, named(PLACE):
        raise FileNotFoundError(reply(404, "NoSuchKey"))
    assert absent.value.code is Code.CHECKPOINT_INVALID
    with pytest.raises(SidecarError, match="create the bucket") as bucket, named(PLACE):
        raise FileNotFoundError(reply(404, "NoSuchBucket"))
    assert bucket.value.code is Code.CHECKPOINT_UNREADABLE


def test_a_defect_of_ours_stays_one() -> None:
    with pytest.raises(ZeroDivisionError), named(PLACE):
        raise ZeroDivisionError
