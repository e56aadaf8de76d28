"""Reads and judges what a caller sent, after its credentials were checked.

FastAPI would read and judge a body before its dependencies; so routes take theirs by a
dependency of our own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError

_MAX_BODY_BYTES = 1024 * 1024
_TOLD = 5
ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True)
class Parsed(Generic[ModelT]):
    """The dependency that reads a body as this model."""

    model: type[ModelT]
    empty: bytes = b""
    """What no body at all stands for."""
    limit: int = _MAX_BODY_BYTES
    """How many bytes a body may have."""

    async def __call__(self, request: Request) -> ModelT:
        """Read the body; raises InvalidRequest with the names of the wrong fields."""
        try:
            return self.model.model_validate_json(await _body(request, self.limit) or self.empty)
        except ValidationError as error:
            told = complaint(error.errors(include_url=False, include_input=False))
            raise SidecarError(Code.INVALID_REQUEST, told) from error


def complaint(errors: Sequence[Any]) -> str:
    """Tell each wrong field by its name."""
    return "; ".join(
        f"{'.'.join(str(part) for part in one['loc']) or 'body'}: {one['msg']}"
        for one in errors[:_TOLD]
    )


async def _body(request: Request, limit: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise SidecarError(Code.INVALID_REQUEST, f"the body has more than {limit} bytes")
    return b"".join(pieces)
