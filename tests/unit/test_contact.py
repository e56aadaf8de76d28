"""When a command's answer is waited for no longer."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rlfleet_contract.models import Running, Verb
from rlfleet_operator.adapters.worker import WorkerClient
from rlfleet_operator.contact import Contact
from tests import workers


@pytest.fixture
async def contact() -> AsyncIterator[Contact]:
    """A worker that was sent a command at moment 0 and has not answered it."""
    client = WorkerClient("http://127.0.0.1:1", asyncio.Semaphore(1))
    command = asyncio.ensure_future(asyncio.sleep(60))
    yield Contact(client, workers.pod(), workers.report(), reachable=True, command=command)
    command.cancel()
    await client.close()


def is_given_up(contact: Contact) -> bool:
    return contact.command is not None and bool(contact.command.cancelling())


async def test_a_command_that_nobody_carries_out_is_given_up(contact: Contact) -> None:
    contact.give_up_lost(4.0)
    assert not is_given_up(contact)

    contact.give_up_lost(6.0)
    assert is_given_up(contact)


async def test_a_command_that_is_carried_out_is_waited_for(contact: Contact) -> None:
    running = Running(verb=Verb.RELOAD, operation="rollout-1", version="step-1")
    contact.report = workers.report(running=running)

    contact.give_up_lost(600.0)
    assert not is_given_up(contact)

    contact.report = workers.report()
    contact.give_up_lost(604.0)
    assert not is_given_up(contact)


async def test_silence_says_nothing_about_a_command(contact: Contact) -> None:
    contact.reachable = False

    contact.give_up_lost(600.0)

    assert not is_given_up(contact)
