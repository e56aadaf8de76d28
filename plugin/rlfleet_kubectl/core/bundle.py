"""The files of a support bundle, and the manifest that says what is in it and what is not."""

import io
import json
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from rlfleet_kubectl.core import redaction, secret_text
from rlfleet_view.fleet import RawObject

MANIFEST = "manifest.json"
LOG_CHARACTERS = 10_000_000
"""Most of one log in a bundle."""
_ALL_LOGS = 400_000_000
_LEAST_OF_LOG = 100_000
_READ_ME = """\
A support bundle of rlfleet. manifest.json lists the files and what could not be read.
Secrets were never fetched; their names, keys and lengths are in secrets/. Values that look like
credentials were removed from all files: {removed}. Read them before you send them.
"""


@dataclass
class Bundle:
    """Files by name; each is redacted when the bundle is packed."""

    documents: dict[str, RawObject | list[RawObject]] = field(default_factory=dict)
    """Objects that kubectl returned."""
    texts: dict[str, str] = field(default_factory=dict)
    """Logs, metrics, tables."""
    unread: dict[str, str] = field(default_factory=dict)
    """What could not be read, with kubectl's words."""

    @property
    def count(self) -> int:
        """Files of which secrets are removed."""
        return len(self.documents) + len(self.texts)

    def files(
        self, head: Mapping[str, object], advance: Callable[[], None] = lambda: None
    ) -> dict[str, str]:
        """Return all files without secrets, and the manifest; ``head`` is put into it.

        After each file it calls ``advance``.
        """
        known = redaction.learned(_each(self.documents.values()))
        found = dict[str, str]()
        for name, raw in self.documents.items():
            found[name] = json.dumps(_without(raw, known), indent=2) + "\n"
            advance()
        for name, one in self.texts.items():
            found[name] = redaction.text(one, known)
            advance()
        unread = {name: redaction.text(why, known) for name, why in self.unread.items()}
        listed = {name: len(found[name].encode()) for name in sorted(found)}
        manifest = {**head, "files": listed, "unread": dict(sorted(unread.items()))}
        found[MANIFEST] = json.dumps(manifest, indent=2) + "\n"
        found["README.txt"] = _READ_ME.format(removed=secret_text.REMOVED)
        return found


def _each(documents: Iterable[RawObject | list[RawObject]]) -> list[RawObject]:
    return [one for each in documents for one in (each if isinstance(each, list) else [each])]


def _without(raw: RawObject | list[RawObject], known: frozenset[str]) -> object:
    if isinstance(raw, list):
        return [redaction.document(one, known) for one in raw]
    return redaction.document(raw, known)


def most_of_each(count: int) -> int:
    """Return how much of each of so many logs a bundle has: all must fit into memory."""
    return max(_LEAST_OF_LOG, min(LOG_CHARACTERS, _ALL_LOGS // max(1, count)))


def newest(log: str, most: int) -> str:
    """Return the last whole lines of a log, in at most so many characters."""
    if len(log) <= most:
        return log
    return log[-most:].partition("\n")[2]


def packed(files: Mapping[str, str], folder: str, at: int) -> bytes:
    """Return the files as a .tar.gz, below one folder; ``at`` is their time in epoch seconds."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as made:
        for name in sorted(files):
            content = files[name].encode()
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mtime, entry.mode = len(content), at, 0o600
            made.addfile(entry, io.BytesIO(content))
    return held.getvalue()
