"""Adapters as Dynamo's clients ask for them: by a URI, and answered in words of their own.

A Python worker of Dynamo's has ``load_lora`` and ``unload_lora``, its native sidecar the
same and a list below ``update/``; all say ``success`` where other routes say ``ok``, and
prime-rl holds an answer without its number for a refusal.
"""

from collections.abc import Awaitable, Callable
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict

from rlfleet_contract.worker.loaded_lora import AdapterName
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.dialects.lora import Library
from rlfleet_sidecar.dialects.replies import Fields
from rlfleet_sidecar.dialects.routes.lora import LoadBody, demand_new
from rlfleet_sidecar.errors import SidecarError


class Source(BaseModel):
    """Where an adapter lies."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    uri: str


class LoRAFields(BaseModel):
    """What these routes take."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    lora_name: AdapterName | None = None
    source: Source | None = None
    load_inplace: bool = False


async def _load(library: Library, asked: LoRAFields) -> Fields:
    """Load over whatever has the name, as a Python worker does that swaps."""
    return await _loaded(library, _wanted(asked))


async def _load_new(library: Library, asked: LoRAFields) -> Fields:
    """Load; one of another directory is replaced if ``load_inplace`` says so."""
    wanted = _wanted(asked)
    demand_new(library, wanted)
    return await _loaded(library, wanted)


async def _loaded(library: Library, wanted: LoadBody) -> Fields:
    known = library.known(wanted.lora_name)
    before = None if known is None else known.number
    after = (await library.load(wanted.lora_name, wanted.lora_path)).number
    is_swap = before is not None and before != after
    done = "hot-swapped successfully" if is_swap else "loaded successfully"
    if before is not None and before == after:
        done = "already loaded"
    return _told(wanted.lora_name, after, done) | {"hot_swap": is_swap}


async def _unload(library: Library, asked: LoRAFields) -> Fields:
    """Forget a name; as upstream, it is an error if nothing was loaded under it."""
    name = _name(asked)
    known = library.known(name)
    if known is None or known.version is None:
        raise SidecarError(Code.INVALID_REQUEST, f"lora_name: LoRA adapter '{name}' not found")
    await library.unload(name)
    return _told(name, known.number, "unloaded successfully")


async def _list(library: Library, _asked: LoRAFields) -> Fields:
    loras = library.loaded()
    return {"status": "success", "loras": loras, "count": len(loras)}


ACTS: dict[str, Callable[[Library, LoRAFields], Awaitable[Fields]]] = {
    "load_lora": _load,
    "unload_lora": _unload,
    "update/load_lora": _load_new,
    "update/unload_lora": _unload,
    "update/list_loras": _list,
}


def _told(name: str, number: int | None, done: str) -> Fields:
    message = f"LoRA adapter '{name}' {done}"
    return {"status": "success", "message": message, "lora_name": name, "lora_id": number}


def _wanted(asked: LoRAFields) -> LoadBody:
    name = _name(asked)
    if asked.source is None:
        raise SidecarError(Code.INVALID_REQUEST, "source: is missing; it holds uri")
    directory = _directory(asked.source.uri)
    return LoadBody(lora_name=name, lora_path=directory, load_inplace=asked.load_inplace)


def _name(asked: LoRAFields) -> str:
    if asked.lora_name is None:
        raise SidecarError(Code.INVALID_REQUEST, "lora_name: is missing")
    return asked.lora_name


def _directory(uri: str) -> str:
    """Tell the directory of a URI, which is not repeated: it may hold credentials."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme != "file" or parts.netloc not in {"", "localhost"} or not parts.path:
        raise SidecarError(
            Code.INVALID_REQUEST,
            "source.uri: is none of a directory that this worker sees, such as"
            " file:///weights/adapters/step-1; nothing is fetched from elsewhere",
        )
    return unquote(parts.path)
