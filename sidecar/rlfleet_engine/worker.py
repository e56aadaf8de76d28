"""The reload, inside each of vLLM's workers.

vLLM loads it by ``--worker-extension-cls rlfleet_engine.worker.ReloadExtension``; the sidecar
calls it through ``/collective_rpc``. It passes the tensors of exactly the checked files to vLLM's
loaders: no Hub lookup, no pickle, no other format.
If a file is not the checked one, the model must stay untouched.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import torch

from rlfleet_contract.engine.rank_report import Preloaded
from rlfleet_contract.engine.safetensors import FileStamp, Tensor
from rlfleet_contract.worker.selftest import kind_of
from rlfleet_engine.reload import model_memory, perturb, preload
from rlfleet_engine.reload.file_reader import Data, FileReader
from rlfleet_engine.reload.held import HeldFiles
from rlfleet_engine.reload.model_reading import ModelReading
from rlfleet_engine.reload.read_back import Memory, RankRecord, ReadTensor, comparable
from rlfleet_engine.settings import EngineSettings
from rlfleet_engine.vllm import adapter_modules
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
    """The attributes of vLLM's worker that this mixin uses."""

    model_config: Any
    parallel_config: Any
    device: Any
    _rlfleet: RankRecord | None
    _rlfleet_reading: ModelReading | None
    _rlfleet_plain: frozenset[str]
    _rlfleet_ahead: preload.Preload | None

    def get_model(self) -> Any: ...


class ReloadExtension:
    """A mixin of vLLM's worker class; its public methods are paths.*_RPC."""

    _rlfleet: RankRecord | None = None
    _rlfleet_reading: ModelReading | None = None
    """Of the memory after the last reload."""
    _rlfleet_plain: frozenset[str] = frozenset()
    """Survives a failed reload, because it is about the model and not about its weights."""
    _rlfleet_ahead: preload.Preload | None = None

    def rlfleet_reload(
        self: _Worker,
        directory: str,
        files: Iterable[Mapping[str, Any]],
        changed: Iterable[str] = (),
        strength: float = 1.0,
    ) -> dict[str, Any]:
        """Load the checked files in place, report what was read, and begin to read memory.

        For the self-test, tensors of the kinds ``changed`` get other values than the files',
        ``strength`` times each tensor's own spread away.
        """
        stamps = [FileStamp.model_validate(record) for record in files]
        before = _record(self)
        feeding = _Feeding(
            model_memory.named(self.get_model()) if before.memory else {},
            self.model_config.dtype,
            (frozenset(changed), strength),
        )
        ahead, self._rlfleet_ahead = self._rlfleet_ahead, None
        with (
            preload.ended(ahead, directory, stamps) as taken,
            FileReader(directory, stamps, held=taken.files) as reader,
        ):
            # From here on the engine's weights are unknown; an error leaves them so.
            self._rlfleet = self._rlfleet_reading = None
            _load_drafter(self, directory, stamps, taken.files)
            apart = load.drafter_apart(self)
            fed = consumed.as_booted(self.get_model(), apart, feeding.of(reader))
            load.load(self, fed, taken.zeroed)
            installed = reader.installed()
        digest = None if feeding.casts else installed.digest
        loaded = RankRecord(None, feeding.fed, digest, kept.sizes(self.get_model()))
        before = replace(before, plain=self._rlfleet_plain)
        # A GPU is read in milliseconds, and its engine's work would delay that.
        is_beside = self.device.type == "cpu"
        self._rlfleet_reading = ModelReading(
            before, loaded, _reader(self), frozenset(feeding.moved), is_beside=is_beside
        )
        found = {
            "previous": comparable(before, digest),
            "reads_memory": True,
            "changed": feeding.others,
        }
        return installed.model_copy(update=found).model_dump()

    def rlfleet_reloaded(self: _Worker) -> dict[str, Any] | None:
        """Return the memory after the last reload, compared with the tensors that it loaded."""
        _settled(self)
        if self._rlfleet_reading is None:
            raise RuntimeError("memory was not read after a reload; reload the version")
        read = self._rlfleet_reading.report()
        return None if read is None else read.model_dump()

    def rlfleet_preload(
        self: _Worker, directory: str, files: Iterable[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Begin to read the files for the next reload, while the engine serves."""
        stamps = [FileStamp.model_validate(record) for record in files]
        folder = EngineSettings.load(os.environ).preload_dir  # noqa: TID251 - the one reader
        # A reload on a CPU makes the model a second time.
        is_doubled = self.device.type == "cpu"
        self._rlfleet_ahead = ahead = preload.begun(
            self._rlfleet_ahead,
            directory,
            stamps,
            folder,
            is_doubled=is_doubled,
            rooms=load.rooms(self),
        )
        return ahead.report.model_dump()

    def rlfleet_preloaded(self: _Worker) -> dict[str, Any]:
        """Return how far the preload is."""
        ahead = self._rlfleet_ahead
        return (Preloaded() if ahead is None else ahead.report).model_dump()

    def rlfleet_describe(self, kinds: Iterable[str]) -> dict[str, Any]:
        """Return the contract's EngineDescription of this rank."""
        return described(self, list(kinds)).model_dump(mode="json")

    def rlfleet_read_back(self: _Worker) -> dict[str, Any] | None:
        """Return a digest of the weights in memory; later ones are compared with the first."""
        now, known = _read(self), _settled(self)
        if known is None or known.memory != now.memory:
            self._rlfleet = now
        read = now.read_back()
        return None if read is None else read.model_dump()

    def rlfleet_consumed(self: _Worker) -> dict[str, Any] | None:
        """Return the names of the tensors that the load at boot read."""
        ranks = self.parallel_config.world_size_across_dp
        found = consumed.at_boot(self.get_model(), ranks, load.drafter_apart(self))
        return None if found is None else found.model_dump()

    def rlfleet_left_out(self: _Worker, number: int) -> list[str]:
        """Return the modules of a loaded adapter with which this rank does not compute."""
        return adapter_modules.left_out(self.get_model(), number)


def _load_drafter(
    worker: _Worker, directory: str, stamps: Sequence[FileStamp], held: HeldFiles
) -> None:
    """Load what proposes tokens from the same files, so that its proposals stay good."""
    drafter = load.drafter_of(worker)
    names = consumed.read_by(drafter) if drafter is not None else ()
    if not names:
        # Without the record of its boot it keeps its weights; the model rejects bad proposals.
        return
    with FileReader(directory, stamps, held=held, names=names) as reader:
        load.load_drafter(worker, drafter, ((one.name, _tensor(one, data)) for one, data in reader))


def _record(worker: _Worker) -> RankRecord:
    """Return the state of the last reload, or of the memory now."""
    known = _settled(worker)
    if known is None:
        known = worker._rlfleet = _read(worker)  # noqa: SLF001 - the extension's own
    return known


def _settled(worker: _Worker) -> RankRecord | None:
    """Wait for the reading of memory; return the last state, None if none is known."""
    reading = worker._rlfleet_reading  # noqa: SLF001 - the extension's own
    if worker._rlfleet is None and reading is not None:  # noqa: SLF001 - the extension's own
        # After an error memory is read again.
        worker._rlfleet_reading = None  # noqa: SLF001 - the extension's own
        worker._rlfleet = reading.record()  # noqa: SLF001 - the extension's own
        worker._rlfleet_plain |= reading.plain()  # noqa: SLF001 - the extension's own
        worker._rlfleet_reading = reading  # noqa: SLF001 - the extension's own
    return worker._rlfleet  # noqa: SLF001 - the extension's own


def _read(worker: _Worker) -> RankRecord:
    return RankRecord(_reader(worker)(), sizes=kept.sizes(worker.get_model()))


def _reader(worker: _Worker) -> Callable[[], Memory | None]:
    """Return what reads a rank's memory, and returns None if it has bytes that nothing wrote."""
    model = worker.get_model()
    if worker.model_config.quantization is not None:
        return lambda: None
    return partial(_memory_of, {**model_memory.named(model), **kept.packed(model)})


def _memory_of(tensors: Mapping[str, Any]) -> Memory:
    # The mode is each thread's own.
    with torch.inference_mode():
        return model_memory.read(tensors)


class _Feeding:
    """Passes tensors to vLLM and records those with a parameter of the same name and kind."""

    def __init__(
        self, tensors: Mapping[str, Any], dtype: Any, changed: tuple[frozenset[str], float]
    ) -> None:
        self._kinds = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
        self._dtype = dtype
        self._changed, self._strength = changed
        self.fed: dict[str, ReadTensor] = {}
        self.moved: set[str] = set()
        """The tensors that got random values instead of the files'."""
        self.others = 0
        """How many tensors got other values than the files'."""
        self.casts = False
        """Whether the model stores a tensor in another dtype than the file's."""

    def of(self, reader: FileReader) -> Iterator[tuple[str, Any]]:
        """Yield the reader's tensors for vLLM."""
        for tensor, data in reader:
            made, known = _tensor(tensor, data), reader.word_sum(tensor.name)
            if kind_of(tensor.name) in self._changed:
                plain, known = made, None
                made = perturb.changed(tensor.name, plain, self._strength)
                self.others += perturb.is_other(made, plain)
                if perturb.is_random(made):
                    self.moved.add(tensor.name)
            dtype, shape = self._kinds.get(tensor.name, (self._dtype, None))
            self.casts |= made.dtype != dtype
            if (dtype, shape) == (made.dtype, made.shape):
                self.fed[tensor.name] = model_memory.entry_of(made, known)
            yield tensor.name, made


def _tensor(tensor: Tensor, data: Data) -> Any:
    dtype = getattr(torch, _TORCH_NAMES[tensor.dtype])
    if not data:
        return torch.empty(tensor.shape, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype).reshape(tensor.shape)
