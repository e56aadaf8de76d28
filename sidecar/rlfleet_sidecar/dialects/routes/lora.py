"""Adapters, as prime-rl, vLLM's own clients and SkyRL ask for them.

None of them pauses for that, and none has to: who came before ends with what it began
with.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict
from starlette.responses import PlainTextResponse, Response

from rlfleet_contract.worker.loaded_lora import AdapterName
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.dialects.lora import Library
from rlfleet_sidecar.dialects.replies import DialectRoute, refusal, shown, told
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.http.parts import part_of
from rlfleet_sidecar.http.request_body import Parsed

router = APIRouter(route_class=DialectRoute)


class _Body(BaseModel):
    """Clients of many releases send it: what is not known is left unread."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    lora_name: AdapterName


class LoadBody(_Body):
    """An adapter's directory, and the name that it shall have."""

    lora_path: str
    load_inplace: bool = False


class UnloadBody(_Body):
    """A name that shall be forgotten."""


async def library_of(request: Request) -> Library:
    """Find the adapters of the worker that this application is about."""
    return part_of(request, Library)


LibraryOfRequest = Annotated[Library, Depends(library_of)]
LoadOfRequest = Annotated[LoadBody, Depends(Parsed(LoadBody))]


@router.post("/load_lora_adapter")
async def load(library: LibraryOfRequest, body: LoadOfRequest) -> Response:
    """Load an adapter and replace its name, as prime-rl does."""
    try:
        adapter = await library.load(body.lora_name, body.lora_path)
    except SidecarError as error:
        return refusal(error, error.code.adapter_status)
    return told(status="ok", **shown(adapter))


@router.post("/skyrl/v1/load_lora_adapter")
async def load_skyrl(library: LibraryOfRequest, body: LoadOfRequest) -> Response:
    """Load an adapter and replace its name, as SkyRL does."""
    adapter = await library.load(body.lora_name, body.lora_path)
    return told(status="ok", lora_name=adapter.name, lora_int_id=adapter.number, **shown(adapter))


@router.post("/v1/load_lora_adapter")
async def load_vllm(library: LibraryOfRequest, body: LoadOfRequest) -> Response:
    """Load an adapter; ``load_inplace`` replaces one of the same name."""
    demand_new(library, body)
    adapter = await library.load(body.lora_name, body.lora_path)
    return PlainTextResponse(f"Success: LoRA adapter '{adapter.name}' added successfully.")


@router.post("/v1/unload_lora_adapter")
async def unload(
    library: LibraryOfRequest, body: Annotated[UnloadBody, Depends(Parsed(UnloadBody))]
) -> Response:
    """Unload a name; an unknown name is no error."""
    await library.unload(body.lora_name)
    return PlainTextResponse(f"Success: LoRA adapter '{body.lora_name}' removed successfully.")


def demand_new(library: Library, body: LoadBody) -> None:
    """See, as vLLM does, that a name is not taken by another adapter unawares."""
    known = library.known(body.lora_name)
    is_taken = known is not None and known.is_loaded and known.path != body.lora_path
    if is_taken and not body.load_inplace:
        raise SidecarError(
            Code.INVALID_REQUEST,
            f"The lora adapter '{body.lora_name}' has already been loaded. If you want to load the"
            " adapter in place, set 'load_inplace' to True.",
        )
