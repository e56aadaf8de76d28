"""A fleet's target, and a trainer's call that a worker rejected because of it."""

from typing import NamedTuple

from rlfleet_contract.schema import ContractReply


class Target(NamedTuple):
    """The requested version of a fleet."""

    version: str
    owner: str = ""
    """What set it, such as ``spec.weightVersion, written by kubectl``; empty if unknown."""


class RejectedTrainer(ContractReply):
    """A trainer's call that was rejected because the fleet has a target."""

    client: str
    """Its address and User-Agent."""
    call: str
    """Method and path."""
    at: float
    """Seconds since the epoch, by the worker's clock."""
