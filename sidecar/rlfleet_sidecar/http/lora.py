"""The admin routes about adapters: parse, call, return a contract model."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from rlfleet_contract import paths
from rlfleet_contract.loaded_lora import AdapterList
from rlfleet_contract.lora import LoadAdapterRequest, UnloadAdapterRequest
from rlfleet_sidecar.change.executor import Performer
from rlfleet_sidecar.http.admin import Worker, performer_of, told
from rlfleet_sidecar.http.request_body import Parsed

router = APIRouter()


@router.get(paths.ADAPTERS_PATH)
async def adapters(performer: Annotated[Performer, Depends(performer_of)]) -> AdapterList:
    """Tell every adapter that is served, or shall be."""
    return AdapterList(adapters=performer.report().adapters)


@router.post(paths.ADAPTERS_PATH)
async def load_adapter(
    worker: Worker, request: Annotated[LoadAdapterRequest, Depends(Parsed(LoadAdapterRequest))]
) -> Response:
    """Serve an adapter under a name, or another one in its place."""
    return told(await worker.carry_out(request))


@router.delete(paths.ADAPTERS_PATH)
async def unload_adapter(
    worker: Worker, request: Annotated[UnloadAdapterRequest, Depends(Parsed(UnloadAdapterRequest))]
) -> Response:
    """Serve a name no more."""
    return told(await worker.carry_out(request))
