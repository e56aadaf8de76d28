"""Adapters, as prime-rl, vLLM's own clients and SkyRL ask for them.

None of them pauses for that, and none has to: who came before ends with what it began
with.
"""

from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict
from starlette.responses import PlainTextResponse, Response

from rlfleet_contract.loaded import AdapterName, AdapterReport
from rlfleet_contract.problems import Code
from rlfleet_sidecar.bodies import Parsed
from rlfleet_sidecar.dialects.meaning import adapter_status_of
from rlfleet_sidecar.dialects.replies import DialectRoute, Worker, refusal, told
from rlfleet_sidecar.dialects.trainer import Trainer
from rlfleet_sidecar.errors import SidecarError

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


Load = Annotated[LoadBody, Depends(Parsed(LoadBody))]


@router.post("/load_lora_adapter")
async def load(worker: Worker, body: Load) -> Response:
    """Load an adapter, over whatever has its name, as prime-rl does."""
    try:
        adapter = await worker.load_adapter(body.lora_name, body.lora_path)
    except SidecarError as error:
        return refusal(error, adapter_status_of(error.code))
    return told(status="ok", **_shown(adapter))


@router.post("/skyrl/v1/load_lora_adapter")
async def load_skyrl(worker: Worker, body: Load) -> Response:
    """Load an adapter, over whatever has its name, as SkyRL does."""
    adapter = await worker.load_adapter(body.lora_name, body.lora_path)
    return told(status="ok", lora_name=adapter.name, lora_int_id=adapter.number, **_shown(adapter))


@router.post("/v1/load_lora_adapter")
async def load_vllm(worker: Worker, body: Load) -> Response:
    """Load an adapter; one of the same name is replaced if ``load_inplace`` says so."""
    demand_new(worker, body)
    adapter = await worker.load_adapter(body.lora_name, body.lora_path)
    return PlainTextResponse(f"Success: LoRA adapter '{adapter.name}' added successfully.")


@router.post("/v1/unload_lora_adapter")
async def unload(
    worker: Worker, body: Annotated[UnloadBody, Depends(Parsed(UnloadBody))]
) -> Response:
    """Forget a name; it is no error if nobody has it."""
    await worker.unload_adapter(body.lora_name)
    return PlainTextResponse(f"Success: LoRA adapter '{body.lora_name}' removed successfully.")


def demand_new(worker: Trainer, body: LoadBody) -> None:
    """See, as vLLM does, that a name is not taken by another adapter unawares."""
    known = worker.adapter(body.lora_name)
    is_taken = known is not None and known.is_loaded and known.path != body.lora_path
    if is_taken and not body.load_inplace:
        raise SidecarError(
            Code.INVALID_REQUEST,
            f"The lora adapter '{body.lora_name}' has already been loaded. If you want to load the"
            " adapter in place, set 'load_inplace' to True.",
        )


def _shown(adapter: AdapterReport) -> dict[str, str | None]:
    return {"version": adapter.version, "digest": adapter.digest}
