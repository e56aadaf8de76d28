"""Writes the files of a version piece by piece, but the index, which completes it."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from rlfleet.publish import layout
from rlfleet.publish.encode import Payloads
from rlfleet.publish.layout import Entry
from rlfleet.publish.snapshot import Snapshot
from rlfleet.publish.store import Draft
from rlfleet_contract.paths import MANIFEST_FILE

Files = list[tuple[str, list[str]]]
"""Each file with its tensors."""
_PIECE = 8 * 2**20
_COPIED = ("*.json", "*.txt", "*.model", "*.jinja")
"""Configuration and tokenizer."""
_OF_WEIGHTS = (MANIFEST_FILE, ".index.json")


def copy(draft: Draft, folder: Path | str | None) -> None:
    """Copy what a model has next to its tensors."""
    paths = (
        {path for pattern in _COPIED for path in Path(folder).glob(pattern)} if folder else set()
    )
    for path in sorted(paths):
        if not path.name.endswith(_OF_WEIGHTS):
            draft.write(path.name, iter([path.read_bytes()]))


def tensors(draft: Draft, snapshot: Snapshot, limit: int) -> Files:
    """Write all tensors of a snapshot."""
    sizes = {name: entry.nbytes for name, entry in snapshot.entries.items()}
    plan = layout.shards(sizes, limit)
    files: Files = []
    for number, names in enumerate(plan, start=1):
        entries = layout.in_file_order({name: snapshot.entries[name] for name in names})
        file = layout.shard_name(number, len(plan))
        draft.write(file, _of_snapshot(snapshot, entries))
        files.append((file, list(entries)))
    return files


def payloads(draft: Draft, found: Payloads, checksums: Mapping[str, str], limit: int) -> Files:
    """Write the payloads of a delta; no file if nothing changed."""
    plan = layout.shards(found.sizes, limit)
    files: Files = []
    for number, names in enumerate(plan):
        file = layout.shard_name(number, len(plan))
        own = {name: checksums[name] for name in names}
        draft.write(file, _of_payloads(found, names, own))
        files.append((file, names))
    return files


def _of_snapshot(snapshot: Snapshot, entries: Mapping[str, Entry]) -> Iterator[bytes | memoryview]:
    yield layout.header(entries, {"format": "pt"})
    for name in entries:
        data = snapshot.bytes_of(name)
        for begin in range(0, data.size, _PIECE):
            yield data[begin : begin + _PIECE].data


def _of_payloads(
    found: Payloads, names: list[str], checksums: Mapping[str, str]
) -> Iterator[bytes | memoryview]:
    yield layout.header({name: Entry("U8", (found.sizes[name],)) for name in names}, checksums)
    for name in names:
        yield from found.pieces(name)
