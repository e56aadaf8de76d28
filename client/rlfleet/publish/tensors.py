"""A trainer's tensors as bytes: of numpy, of torch, or in a directory of safetensors files.

torch is not imported here: a tensor of torch proves that the trainer has it.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlfleet.publish.errors import PublishError
from rlfleet.publish.layout import Entry
from rlfleet_contract.engine.safetensors import (
    LENGTH_BYTES,
    BadHeaderError,
    header_length,
    parse_header,
)

TensorBytes = npt.NDArray[np.uint8]
TrainerTensors = Mapping[str, Any] | Iterable[tuple[str, Any]] | Path | str

_DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    # Of ml_dtypes, and of torch.
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
}


@dataclass(frozen=True, slots=True)
class Item:
    """One tensor."""

    name: str
    entry: Entry
    data: TensorBytes
    """As safetensors has it: little-endian, row by row."""


def items(source: TrainerTensors) -> Iterator[Item]:
    """Yield each tensor of a source once; raises PublishError."""
    if isinstance(source, str | Path):
        yield from _in_folder(Path(source))
        return
    pairs = source.items() if isinstance(source, Mapping) else source
    for name, tensor in pairs:
        yield _item(name, tensor)


def _item(name: str, tensor: Any) -> Item:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        return _of_torch(name, tensor, torch)
    if isinstance(tensor, np.ndarray):
        array = np.ascontiguousarray(tensor)
        if array.dtype.byteorder == ">":
            array = array.astype(array.dtype.newbyteorder("<"))
        dtype = _dtype(name, array.dtype.name)
        return Item(name, Entry(dtype, tensor.shape), array.reshape(-1).view(np.uint8))
    raise PublishError(
        f"tensor {name} is of type {type(tensor).__name__} (expected numpy.ndarray or"
        " torch.Tensor); convert it"
    )


def _of_torch(name: str, tensor: Any, torch: Any) -> Item:
    if hasattr(tensor, "full_tensor"):
        raise PublishError(
            f"tensor {name} is one rank's part of a tensor; pass full_tensor() of it, from one rank"
        )
    dtype = _dtype(name, str(tensor.dtype).removeprefix("torch."))
    try:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        data = flat.view(torch.uint8).numpy()
    except (RuntimeError, TypeError) as error:
        # On the meta device, sparse, or of a class that packs its values, as torchao's.
        raise PublishError(
            f"tensor {name} ({type(tensor).__name__} on {tensor.device}) has no plain bytes"
            f" ({error}); pass a dense tensor with values"
        ) from error
    return Item(name, Entry(dtype, tuple(tensor.shape)), data)


def _dtype(name: str, dtype: str) -> str:
    if dtype not in _DTYPES:
        raise PublishError(f"tensor {name} has dtype {dtype}, which safetensors lacks; convert it")
    return _DTYPES[dtype]


def _in_folder(folder: Path) -> Iterator[Item]:
    paths = sorted(folder.glob("*.safetensors"))
    if any(path.name.startswith("model") for path in paths):
        # Mistral's second copy of a model, which workers leave out too.
        paths = [path for path in paths if not path.name.startswith("consolidated")]
    if not paths:
        raise PublishError(f"{folder} holds no safetensors file; save the model there first")
    for path in paths:
        yield from _in_file(path)


def _in_file(path: Path) -> Iterator[Item]:
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            length = header_length(file.read(LENGTH_BYTES), size)
            tensors = parse_header(file.read(length), size)
    except BadHeaderError as error:
        raise PublishError(f"{path} is not a safetensors file: {error}; save it again") from error
    content = np.memmap(path, np.uint8, "r")
    for tensor in tensors:
        data = content[tensor.begin : tensor.begin + tensor.nbytes]
        yield Item(tensor.name, Entry(tensor.dtype, tensor.shape), data)
