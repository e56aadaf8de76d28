"""Adapters in the form of prime-rl, of vLLM's own clients and of SkyRL.

None of them pauses for a load, and none needs to: running requests end with the adapter that
they began with.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import PlainTextResponse, Response

from rlfleet_contract.worker.loaded_lora import AdapterName
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.dialects.lora import TrainerLoRA
from rlfleet_sidecar.dialects.replies import DialectRoute, refusal, reply, shown
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.http.request_body import Parsed, TrainerBody

router = APIRouter(route_class=DialectRoute)


class NameBody(TrainerBody):
    """The name of an adapter."""

    lora_name: AdapterName


class LoadBody(NameBody):
    """An adapter's directory and its name."""

    lora_path: str
    load_inplace: bool = False


async def library_of(request: Request) -> TrainerLoRA:
    """Return the application's adapters."""
    library: TrainerLoRA = request.app.state.library
    return library


LibraryOfRequest = Annotated[TrainerLoRA, Depends(library_of)]
LoadOfRequest = Annotated[LoadBody, Depends(Parsed(LoadBody))]


@router.post("/load_lora_adapter")
async def load(library: LibraryOfRequest, body: LoadOfRequest) -> Response:
    """Load an adapter and replace its name, as prime-rl does."""
    try:
        adapter = await library.load(body.lora_name, body.lora_path)
    except SidecarError as error:
        return refusal(error, error.code.adapter_status)
    return reply(status="ok", **shown(adapter))


@router.post("/skyrl/v1/load_lora_adapter")
async def load_skyrl(library: LibraryOfRequest, body: LoadOfRequest) -> Response:
    """Load an adapter and replace its name, as SkyRL does."""
    adapter = await library.load(body.lora_name, body.lora_path)
    return reply(status="ok", lora_name=adapter.name, lora_int_id=adapter.number, **shown(adapter))


@router.post("/v1/load_lora_adapter")
async def load_vllm(library: LibraryOfRequest, body: LoadOfRequest) -> Response:
    """Load an adapter; ``load_inplace`` replaces one of the same name."""
    demand_new(library, body)
    adapter = await library.load(body.lora_name, body.lora_path)
    return PlainTextResponse(f"Success: LoRA adapter '{adapter.name}' added successfully.")


@router.post("/v1/unload_lora_adapter")
async def unload(
    library: LibraryOfRequest, body: Annotated[NameBody, Depends(Parsed(NameBody))]
) -> Response:
    """Unload a name; an unknown name is no error."""
    await library.unload(body.lora_name)
    return PlainTextResponse(f"Success: LoRA adapter '{body.lora_name}' removed successfully.")


def demand_new(library: TrainerLoRA, body: LoadBody) -> None:
    """Raise, in vLLM's words, if another adapter has the name and must not be replaced."""
    known = library.known(body.lora_name)
    path = body.lora_path.rstrip("/")
    is_taken = known is not None and known.is_loaded and known.path != path
    if is_taken and not body.load_inplace:
        raise SidecarError(
            Code.INVALID_REQUEST,
            f"The lora adapter '{body.lora_name}' has already been loaded. If you want to load the"
            " adapter in place, set 'load_inplace' to True.",
        )
