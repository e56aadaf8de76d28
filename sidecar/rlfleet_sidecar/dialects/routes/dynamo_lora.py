"""Adapters in Dynamo's form, with a URI.

Dynamo's Python worker has ``load_lora`` and ``unload_lora``, its native sidecar the same and a
list below ``update/``. Their ``status`` is ``success``, not ``ok``, and prime-rl treats a reply
without the adapter's number as an error.
"""

from collections.abc import Awaitable, Callable
from urllib.parse import unquote, urlsplit

from rlfleet_contract.worker.loaded_lora import AdapterName
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.dialects.lora import TrainerLoRA
from rlfleet_sidecar.dialects.replies import Fields
from rlfleet_sidecar.dialects.routes.lora import LoadBody, demand_new
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.http.request_body import TrainerBody


class Source(TrainerBody):
    """The location of an adapter."""

    uri: str


class LoRAFields(TrainerBody):
    """The fields of these routes."""

    lora_name: AdapterName | None = None
    source: Source | None = None
    load_inplace: bool = False


async def _load(library: TrainerLoRA, asked: LoRAFields) -> Fields:
    """Load, and replace an adapter of that name, as Dynamo's Python worker does."""
    return await _loaded(library, _wanted(asked))


async def _load_new(library: TrainerLoRA, asked: LoRAFields) -> Fields:
    """Load; replaces an adapter of another directory only with ``load_inplace``."""
    wanted = _wanted(asked)
    demand_new(library, wanted)
    return await _loaded(library, wanted)


async def _loaded(library: TrainerLoRA, wanted: LoadBody) -> Fields:
    known = library.known(wanted.lora_name)
    before = None if known is None else known.number
    after = (await library.load(wanted.lora_name, wanted.lora_path)).number
    is_swap = before is not None and before != after
    done = "hot-swapped successfully" if is_swap else "loaded successfully"
    if before is not None and before == after:
        done = "already loaded"
    return _reply(wanted.lora_name, after, done) | {"hot_swap": is_swap}


async def _unload(library: TrainerLoRA, asked: LoRAFields) -> Fields:
    """Unload a name; an error if it is not loaded, as in Dynamo."""
    name = _name(asked)
    known = library.known(name)
    if known is None or known.version is None:
        raise SidecarError(Code.INVALID_REQUEST, f"lora_name: LoRA adapter '{name}' not found")
    await library.unload(name)
    return _reply(name, known.number, "unloaded successfully")


async def _list(library: TrainerLoRA, _asked: LoRAFields) -> Fields:
    loras = library.loaded()
    return {"status": "success", "loras": loras, "count": len(loras)}


ACTS: dict[str, Callable[[TrainerLoRA, LoRAFields], Awaitable[Fields]]] = {
    "load_lora": _load,
    "unload_lora": _unload,
    "update/load_lora": _load_new,
    "update/unload_lora": _unload,
    "update/list_loras": _list,
}


def _reply(name: str, number: int | None, done: str) -> Fields:
    message = f"LoRA adapter '{name}' {done}"
    return {"status": "success", "message": message, "lora_name": name, "lora_id": number}


def _wanted(asked: LoRAFields) -> LoadBody:
    name = _name(asked)
    if asked.source is None:
        raise SidecarError(Code.INVALID_REQUEST, "source: is required, with uri")
    directory = _directory(asked.source.uri)
    return LoadBody(lora_name=name, lora_path=directory, load_inplace=asked.load_inplace)


def _name(asked: LoRAFields) -> str:
    if asked.lora_name is None:
        raise SidecarError(Code.INVALID_REQUEST, "lora_name: is required")
    return asked.lora_name


def _directory(uri: str) -> str:
    """Return the directory of a URI; the error does not quote it, as it may have credentials."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme != "file" or parts.netloc not in {"", "localhost"} or not parts.path:
        raise SidecarError(
            Code.INVALID_REQUEST,
            "source.uri: only directories of this worker are supported, such as"
            " file:///weights/adapters/step-1",
        )
    return unquote(parts.path)
