"""Reads and validates a request's body, after its credentials were checked.

FastAPI validates a body before its dependencies run. So routes read theirs by a dependency.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, ValidationError

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError

_MAX_BODY_BYTES = 1024 * 1024
_NAMED = 5
ModelT = TypeVar("ModelT", bound=BaseModel)


class TrainerBody(BaseModel):
    """Ignores unknown fields, because clients of many releases send it."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


@dataclass(frozen=True)
class Parsed(Generic[ModelT]):
    """The dependency that reads a body as this model."""

    model: type[ModelT]
    empty: bytes = b""
    """Replaces an absent body."""
    limit: int = _MAX_BODY_BYTES
    """Largest size of a body in bytes."""

    async def __call__(self, request: Request) -> ModelT:
        """Return the parsed body; raises InvalidRequest with the names of invalid fields."""
        try:
            return self.model.model_validate_json(await _body(request, self.limit) or self.empty)
        except ValidationError as error:
            message = complaint(error.errors(include_url=False, include_input=False))
            raise SidecarError(Code.INVALID_REQUEST, message) from error


def complaint(errors: Sequence[Any]) -> str:
    """Return the first invalid fields with the reason of each."""
    return "; ".join(
        f"{'.'.join(str(part) for part in one['loc']) or 'body'}: {one['msg']}"
        for one in errors[:_NAMED]
    )


async def _body(request: Request, limit: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise SidecarError(Code.INVALID_REQUEST, f"body too large (at most {limit} bytes)")
    return b"".join(pieces)
