"""What a fleet is asked for, and what a worker reports of a trainer that it rejected for it."""

from typing import NamedTuple

from rlfleet_contract.schema import ContractReply


class Target(NamedTuple):
    """The version that the fleet is asked for."""

    version: str
    owner: str = ""
    """What sets it, such as ``spec.weightVersion, written by kubectl``; empty if not known."""


class RejectedTrainer(ContractReply):
    """A trainer's call that was rejected because the fleet is asked for a version."""

    client: str
    """Its address and User-Agent."""
    call: str
    """Method and path."""
    at: float
    """Seconds since the epoch, by the worker's clock."""
