"""The memory of an engine that is cheap: one entry a tensor, and how its weights answer.

Neighbours are weights that differ in the lowest bits of some bytes, as those of two steps
of training do: greedy tokens are the same then, and log probabilities a little other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from rlfleet_contract.engine.rank_report import Installed, ReadBack
from rlfleet_contract.engine.safetensors import FileStamp, Tensor
from rlfleet_engine.reload.file_reader import FileReader
from rlfleet_engine.reload.preload import Preload, ended
from rlfleet_engine.reload.read_back import RankRecord, ReadTensor, comparable, reloaded

_COARSE = bytes(byte & 0xFC for byte in range(256))
_FINE = 0.01
"""By how much neighbours differ at most in a log probability."""


@dataclass
class Weights:
    """What an engine holds."""

    exact: str
    """Digest of all bytes."""
    coarse: str
    """Digest of all bytes without their lowest bits."""
    memory: dict[str, ReadTensor] = field(default_factory=dict)

    def token(self, prompt: object, place: int, turn: object, vocabulary: int) -> int:
        """Return the greedy token after a prompt and the tokens so far."""
        return _number(f"{self.coarse} {prompt} {place} {turn}") % vocabulary

    def logprob(self, prompt: Sequence[int], place: int) -> float:
        """Return the log probability of a prompt's token."""
        before = list(prompt[: place + 1])
        coarse = _number(f"{self.coarse} {before}") % 8000 / 1000
        return -0.5 - coarse - _FINE * (_number(f"{self.exact} {before}") % 1000 / 1000)

    def mixed(self, what: str) -> "Weights":
        """Return weights that answer otherwise, though they came from the same bytes."""
        exact = sha256(f"{self.exact} {what}".encode()).hexdigest()
        return Weights(exact, sha256(f"{self.coarse} {what}".encode()).hexdigest(), self.memory)


SPOILT = Weights("spoilt", "spoilt")


def _number(told: str) -> int:
    return int.from_bytes(sha256(told.encode()).digest()[:4], "big")


@dataclass
class Consumed:
    """What a reload read, and the weights that it makes."""

    installed: Installed
    weights: Weights

    def reported(
        self, before: RankRecord, held: Weights, *, is_read: bool, sizes: tuple[int, int] = (0, 0)
    ) -> tuple[Installed, ReadBack | None, RankRecord]:
        """Return the extension's reports and record for an engine with these weights."""
        memory = held.memory if is_read else None
        after = RankRecord(memory, self.weights.memory, self.installed.digest, sizes)
        found = {"previous": comparable(before, after.digest), "reads_memory": True}
        return self.installed.model_copy(update=found), reloaded(before, after), after


def consume(
    directory: str,
    stamps: Sequence[FileStamp],
    *,
    drops: bool = False,
    spoils: bool = False,
    ahead: Preload | None = None,
) -> Consumed:
    """Read a checkpoint as the extension does; or only its first tensor, or that one changed."""
    coarse, memory = sha256(), {}
    with (
        ended(ahead, directory, stamps) as taken,
        FileReader(directory, stamps, held=taken.files) as reader,
    ):
        for tensor, data in reader:
            content = bytes(data)
            coarse.update(tensor.name.encode() + content.translate(_COARSE))
            memory[tensor.name] = _entry(tensor, content)
            if drops:
                break
        installed = reader.installed()
    if spoils:
        installed = installed.model_copy(update={"digest": sha256(b"spoilt").hexdigest()})
    return Consumed(installed, Weights(installed.digest, coarse.hexdigest(), memory))


def _entry(tensor: Tensor, data: bytes) -> ReadTensor:
    digest = int.from_bytes(sha256(data).digest()[:8], "big")
    return ReadTensor(tensor.dtype, tensor.shape, tensor.nbytes, digest)


def stamps_of(directory: Path) -> list[FileStamp]:
    """Return the stamps of a checkpoint's files."""
    found = ((path.name, path.stat()) for path in sorted(directory.glob("*.safetensors")))
    return [
        FileStamp(name=name, size=seen.st_size, mtime_ns=seen.st_mtime_ns, inode=seen.st_ino)
        for name, seen in found
    ]


def digest_of(directory: Path) -> str:
    """Digest a checkpoint as a reload of it would."""
    return consume(str(directory), stamps_of(directory)).installed.digest
