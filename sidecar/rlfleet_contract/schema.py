"""The base classes of the contract's models.

Requests forbid unknown fields; replies ignore them, because images differ during an upgrade.
"""

from pydantic import BaseModel, ConfigDict


class ContractRequest(BaseModel):
    """A message from a caller."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ContractReply(BaseModel):
    """A server's answer."""

    model_config = ConfigDict(frozen=True, extra="ignore")
