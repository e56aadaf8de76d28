"""The reload, inside each of vLLM's workers.

Named to vLLM by ``--worker-extension-cls rlfleet_engine.worker.ReloadExtension`` and
called by the sidecar through ``/collective_rpc``. It feeds vLLM's own reload the tensors
of exactly the checked files, so there is no Hub lookup, no pickle and no other format.
It must stay true that nothing was touched in the model when a file is not the checked one.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import torch

from rlfleet_contract.engine.safetensors import FileStamp, Tensor
from rlfleet_contract.worker.selftest import kind_of
from rlfleet_engine.reload import model_memory, perturb
from rlfleet_engine.reload.file_reader import Reader
from rlfleet_engine.reload.read_back import Memory, RankRecord, ReadTensor, reloaded
from rlfleet_engine.vllm.describe import described
from rlfleet_engine.vllm.reload import consumed, kept, load

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

consumed.watch_loading()


class _Worker(Protocol):
    """What this extension needs of the vLLM worker that it is mixed into."""

    model_config: Any
    parallel_config: Any
    _rlfleet: RankRecord | None

    def get_model(self) -> Any: ...


class ReloadExtension:
    """Mixed into vLLM's worker class; its public names are paths.*_RPC."""

    _rlfleet: RankRecord | None = None

    def rlfleet_reload(
        self: _Worker,
        directory: str,
        files: Iterable[Mapping[str, Any]],
        changed: str | None = None,
        strength: float = 1.0,
    ) -> dict[str, Any]:
        """Install the checked files in place and tell what was consumed and what stands now.

        ``changed``: a kind of tensors that gets other values than the files', for a test;
        ``strength``: how far away, in units of each tensor's own spread.
        """
        stamps = [FileStamp.model_validate(record) for record in files]
        before = _record(self)
        feeding = _Feeding(
            model_memory.named(self.get_model()) if before.memory else {},
            self.model_config.dtype,
            (changed, strength),
        )
        with Reader(directory, stamps) as reader:
            # From here on nobody knows what the engine holds; an error leaves it so.
            self._rlfleet = None
            fed = consumed.without_lost_heads(self.get_model(), feeding.of(reader))
            load.load(self, fed)
            installed = reader.installed()
        digest = None if feeding.casts else installed.digest
        after = _read(self, feeding.fed, digest)
        self._rlfleet = after
        return reloaded(before, after, installed).model_dump()

    def rlfleet_describe(self, kinds: Iterable[str]) -> dict[str, Any]:
        """Say what this engine is; see the contract's EngineDescription."""
        return described(self, list(kinds)).model_dump(mode="json")

    def rlfleet_read_back(self: _Worker) -> dict[str, Any] | None:
        """Tell what stands in memory; called once after a start it tells later what changed."""
        read = _record(self).told()
        return None if read is None else read.model_dump()

    def rlfleet_consumed(self: _Worker) -> dict[str, Any] | None:
        """Tell which tensors the load at boot has read."""
        ranks = self.parallel_config.world_size_across_dp
        found = consumed.at_boot(self.get_model(), ranks)
        return None if found is None else found.model_dump()


def _record(worker: _Worker) -> RankRecord:
    if worker._rlfleet is None:  # noqa: SLF001 - the extension's own
        worker._rlfleet = _read(worker)  # noqa: SLF001 - the extension's own
    return worker._rlfleet  # noqa: SLF001 - the extension's own


def _read(worker: _Worker, fed: Memory | None = None, digest: str | None = None) -> RankRecord:
    model = worker.get_model()
    sizes = kept.sizes(model)
    if worker.model_config.quantization is not None:
        return RankRecord(None, fed, digest, sizes)
    tensors = {**model_memory.named(model), **kept.packed(model)}
    return RankRecord(model_memory.read(tensors), fed, digest, sizes)


class _Feeding:
    """Hands tensors to vLLM and remembers those that have a parameter of the same kind."""

    def __init__(
        self, tensors: Mapping[str, Any], dtype: Any, changed: tuple[str | None, float]
    ) -> None:
        self._kinds = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
        self._dtype = dtype
        self._changed, self._strength = changed
        self.fed: dict[str, ReadTensor] = {}
        self.casts = False
        """Whether a tensor is served in another dtype than it came in."""

    def of(self, reader: Reader) -> Iterator[tuple[str, Any]]:
        """Feed what the reader reads."""
        for tensor, data in reader:
            made = _tensor(tensor, data)
            if kind_of(tensor.name) == self._changed:
                made = perturb.changed(tensor.name, made, self._strength)
            dtype, shape = self._kinds.get(tensor.name, (self._dtype, None))
            self.casts |= made.dtype != dtype
            if (dtype, shape) == (made.dtype, made.shape):
                self.fed[tensor.name] = model_memory.entry_of(made)
            yield tensor.name, made


def _tensor(tensor: Tensor, data: bytearray) -> Any:
    dtype = getattr(torch, _TORCH_NAMES[tensor.dtype])
    if not data:
        return torch.empty(tensor.shape, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype).reshape(tensor.shape)
