"""What all models of the contract are made of.

Requests forbid unknown fields; replies ignore them, because during an upgrade the two
images differ.
"""

from pydantic import BaseModel, ConfigDict


class Request(BaseModel):
    """What a caller sends."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Reply(BaseModel):
    """What a server answers."""

    model_config = ConfigDict(frozen=True, extra="ignore")
