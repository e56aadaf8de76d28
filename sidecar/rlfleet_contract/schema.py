"""What all models of the contract are made of.

Requests forbid unknown fields; replies ignore them, because during an upgrade the two
images differ.
"""

from pydantic import BaseModel, ConfigDict


class ContractRequest(BaseModel):
    """What a caller sends."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ContractReply(BaseModel):
    """What a server answers."""

    model_config = ConfigDict(frozen=True, extra="ignore")
