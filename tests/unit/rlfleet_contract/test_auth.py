"""Which token a header gives."""

from base64 import b64encode

import pytest

from rlfleet_contract.auth import token_of


def basic(credentials: str | bytes) -> str:
    given = credentials if isinstance(credentials, bytes) else credentials.encode()
    return f"Basic {b64encode(given).decode()}"


@pytest.mark.parametrize(
    "says",
    [
        "Bearer right",
        "BEARER  right ",
        basic("rl:right"),
        basic("any user:right"),
        basic(":right"),
        basic("rl:right\n"),
        basic("rl:right").replace("Basic", "basic "),
    ],
)
def test_a_bearer_s_token_and_a_password_are_one(says: str) -> None:
    assert token_of(says) == "right"


def test_a_password_may_hold_what_parts_it_from_the_user() -> None:
    assert token_of(basic("rl:one:two")) == "one:two"


@pytest.mark.parametrize(
    "says",
    [
        None,
        "",
        "right",
        "Bearer",
        "Basic",
        "Basic ",
        "Basic right",
        "Basic rl:right",
        "Basic =",
        "Basic cmw6cmlnaHQ",
        "Basic cmw6cmln aHQ=",
        "Basic \udcff",
        "Basic \N{SNOWMAN}",
        basic("right"),
        basic("right:"),
        "Digest right",
        "Bearer\tright",
    ],
)
def test_what_cannot_be_read_is_no_token(says: str | None) -> None:
    assert token_of(says) == ""


def test_bytes_that_are_no_text_make_a_token_that_can_be_compared() -> None:
    assert token_of(basic(b"rl:\xff\xfe")).encode() != b""
