"""Access to the fleet API."""

import asyncio
from base64 import b64encode
from typing import Any

import pytest

from rlfleet_operator.core.manifests.owned_objects import AdminToken
from rlfleet_operator.core.trainer.models import Fault, Refusal
from rlfleet_operator.errors import Missing, Refused, Unreachable
from rlfleet_operator.trainer_api.auth import TokenCache

FLEET: dict[str, Any] = {"metadata": {"uid": "f-1"}}
ANOTHER: dict[str, Any] = {"metadata": {"uid": "f-2"}}


class Secrets:
    """Returns tokens by the fleet's UID, and counts its calls."""

    def __init__(self, **tokens: str | AdminToken | Exception) -> None:
        self.tokens = {name.replace("_", "-"): token for name, token in tokens.items()}
        self.asked = 0

    async def read(self, fleet: dict[str, Any]) -> AdminToken:
        self.asked += 1
        found = self.tokens[fleet["metadata"]["uid"]]
        if isinstance(found, Exception):
            raise found
        return AdminToken(found) if isinstance(found, str) else found


def basic(credentials: str) -> str:
    return f"Basic {b64encode(credentials.encode()).decode()}"


@pytest.mark.parametrize(
    "says", ["Bearer right", "bearer right", "BEARER  right ", basic("rl:right"), basic(":right")]
)
async def test_a_caller_with_the_token_is_admitted(says: str) -> None:
    assert await TokenCache(Secrets(f_1="right").read).demand(FLEET, says) == "right"


@pytest.mark.parametrize(
    "says",
    [
        None,
        "",
        "right",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Bearer Right",
        "Bearer right2",
        "Bearer righ",
        "Basic right",
        "Basic rl:right",
        basic("right"),
        basic("right:"),
        basic("rl:wrong"),
        basic("rl:"),
        "Bearer \udcff",
        "Bearer \N{SNOWMAN}",
    ],
)
@pytest.mark.parametrize(
    ("fleet", "token"),
    [
        (FLEET, "right"),
        (FLEET, ""),
        (FLEET, Missing("no Secret")),
        (FLEET, Refused("the Secret is another's")),
        (None, "right"),
    ],
    ids=["its token", "an empty token", "no token", "another's Secret", "no fleet"],
)
async def test_no_other_caller_is_admitted(
    fleet: dict[str, Any] | None, token: str | Exception, says: str | None
) -> None:
    with pytest.raises(Refusal) as refused:
        await TokenCache(Secrets(f_1=token).read).demand(fleet, says)

    assert refused.value.fault is Fault.UNAUTHORIZED


async def test_a_fleet_s_token_is_no_other_fleet_s() -> None:
    access = TokenCache(Secrets(f_1="one", f_2="two").read)

    with pytest.raises(Refusal):
        await access.demand(FLEET, "Bearer two")
    assert await access.demand(ANOTHER, "Bearer two") == "two"


@pytest.mark.parametrize("token", ["right", "", Missing("no Secret")])
async def test_strangers_do_not_make_us_read_secrets(token: str | Exception) -> None:
    secrets = Secrets(f_1=token)
    access = TokenCache(secrets.read)

    for _ in range(50):
        with pytest.raises(Refusal):
            await access.demand(FLEET, "Bearer guess")
        with pytest.raises(Refusal):
            await access.demand(None, "Bearer guess")

    assert secrets.asked == 1


async def test_a_token_that_is_replaced_counts_after_a_while() -> None:
    secrets = Secrets(f_1="old")
    access = TokenCache(secrets.read, kept_s=0.0)
    assert await access.demand(FLEET, "Bearer old") == "old"

    secrets.tokens["f-1"] = "new"

    assert await access.demand(FLEET, "Bearer new") == "new"
    with pytest.raises(Refusal):
        await access.demand(FLEET, "Bearer old")


@pytest.mark.parametrize("says", ["Bearer old", "Bearer new", basic("rl:new")])
async def test_both_tokens_of_a_rotation_are_admitted_and_one_is_sent(says: str) -> None:
    access = TokenCache(Secrets(f_1=AdminToken("new", ("old",), "2")).read)

    assert await access.demand(FLEET, says) == "new"


@pytest.mark.parametrize("says", ["Bearer ", "Bearer older", "Bearer newold", "Bearer 2"])
async def test_a_rotation_admits_no_third_caller(says: str) -> None:
    access = TokenCache(Secrets(f_1=AdminToken("new", ("old", ""), "2")).read)

    with pytest.raises(Refusal):
        await access.demand(FLEET, says)


async def test_a_slow_secret_keeps_no_other_fleet_waiting() -> None:
    answered = asyncio.Event()

    async def read(fleet: dict[str, Any]) -> AdminToken:
        if fleet is ANOTHER:
            await answered.wait()
        return AdminToken("right")

    access = TokenCache(read)
    slow = [asyncio.create_task(access.demand(ANOTHER, "Bearer right")) for _ in range(3)]
    await asyncio.sleep(0)

    async with asyncio.timeout(1):
        # Read now, and known from before.
        assert await access.demand(FLEET, "Bearer right") == "right"
        assert await access.demand(FLEET, "Bearer right") == "right"
    answered.set()
    assert await asyncio.gather(*slow) == ["right"] * 3


async def test_a_client_that_disconnects_ends_no_other_client_s_read() -> None:
    answered, secrets = asyncio.Event(), Secrets(f_1="right")

    async def read(fleet: dict[str, Any]) -> AdminToken:
        await answered.wait()
        return await secrets.read(fleet)

    access = TokenCache(read)
    first, second = (asyncio.create_task(access.demand(FLEET, "Bearer right")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    answered.set()

    assert await second == "right"
    assert secrets.asked == 1


async def test_a_token_that_cannot_be_read_is_an_error() -> None:
    access = TokenCache(Secrets(f_1=Unreachable("timeout")).read)

    with pytest.raises(Unreachable):
        await access.demand(FLEET, "Bearer right")
