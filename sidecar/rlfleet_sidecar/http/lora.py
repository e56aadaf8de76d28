"""The admin routes about adapters: parse, call, return a contract model."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from rlfleet_contract import paths
from rlfleet_contract.loaded_lora import AdapterList
from rlfleet_contract.lora import LoadAdapterRequest, UnloadAdapterRequest
from rlfleet_sidecar.change.executor import Executor
from rlfleet_sidecar.http.admin import FencingOfRequest, executor_of, told
from rlfleet_sidecar.http.request_body import Parsed

router = APIRouter()


@router.get(paths.ADAPTERS_PATH)
async def adapters(executor: Annotated[Executor, Depends(executor_of)]) -> AdapterList:
    """Tell every adapter that is served, or shall be."""
    return AdapterList(adapters=executor.report().adapters)


@router.post(paths.ADAPTERS_PATH)
async def load_adapter(
    worker: FencingOfRequest,
    request: Annotated[LoadAdapterRequest, Depends(Parsed(LoadAdapterRequest))],
) -> Response:
    """Serve an adapter under a name, or another one in its place."""
    return told(await worker.carry_out(request))


@router.delete(paths.ADAPTERS_PATH)
async def unload_adapter(
    worker: FencingOfRequest,
    request: Annotated[UnloadAdapterRequest, Depends(Parsed(UnloadAdapterRequest))],
) -> Response:
    """Serve a name no more."""
    return told(await worker.carry_out(request))
