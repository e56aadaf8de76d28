"""The reload, inside each of vLLM's workers.

Named to vLLM by ``--worker-extension-cls rlfleet_engine.worker.ReloadExtension`` and
called by the sidecar through ``/collective_rpc``. It feeds vLLM's own reload the tensors
of exactly the checked files, so there is no Hub lookup, no pickle and no other format.
It must stay true that nothing was touched in the model when a file is not the checked one.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from rlfleet_contract.tensors import FileStamp, Tensor
from rlfleet_engine.tensors import Reader
from rlfleet_engine.versions import check_loaded

_TORCH_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "BF16": "bfloat16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
}

check_loaded()


class _Worker(Protocol):
    """What this extension needs of the vLLM worker that it is mixed into."""

    def reload_weights(self, **arguments: object) -> None: ...


class ReloadExtension:
    """Mixed into vLLM's worker class; its one public name is api.RELOAD_RPC."""

    def rlfleet_reload(
        self: _Worker, directory: str, files: Iterable[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Install the checked files in place and tell what was consumed."""
        stamps = [FileStamp.model_validate(record) for record in files]
        with Reader(directory, stamps) as reader:
            self.reload_weights(weights_iterator=_as_torch(reader), is_checkpoint_format=True)
            return reader.installed().model_dump()


def _as_torch(reader: Reader) -> Iterator[tuple[str, Any]]:
    for tensor, data in reader:
        yield tensor.name, _tensor(tensor, data)


def _tensor(tensor: Tensor, data: bytearray) -> Any:
    import torch  # noqa: PLC0415 - only inside vLLM's workers

    dtype = getattr(torch, _TORCH_NAMES[tensor.dtype])
    if not data:
        return torch.empty(tensor.shape, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype).reshape(tensor.shape)
