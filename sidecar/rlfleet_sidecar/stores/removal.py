"""Deletes a version in a store, so that what is left never looks like a complete version."""

from collections.abc import Collection, Sequence
from contextlib import suppress

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.stores.client import Opened
from rlfleet_sidecar.stores.failures import named
from rlfleet_sidecar.stores.objects import repeated
from rlfleet_sidecar.stores.url import StoreUrl

_AT_ONCE = 1000
"""What S3 deletes in one request at most."""


def remove(opened: Opened, place: StoreUrl, steps: Sequence[Collection[str]]) -> None:
    """Delete all objects below a place; raises SidecarError.

    Args:
        opened: The store.
        place: Where the version is; its key is not empty.
        steps: Names of objects that must be gone before the next step begins; the rest is last.

    """
    if not place.parts:
        raise SidecarError(Code.INVALID_REQUEST, f"{place} is no version; name one")
    try:
        keys = repeated(lambda: _keys(opened, place))
        for step in (*steps, None):
            due = [key for key in keys if step is None or key.rpartition("/")[2] in step]
            keys = [key for key in keys if key not in set(due)]
            for begin in range(0, len(due), _AT_ONCE):
                with named(place):
                    _delete(opened, due[begin : begin + _AT_ONCE])
    except SidecarError as error:
        message = error.message.replace("failed to read", "failed to delete", 1)
        raise SidecarError(error.code, message) from error


def _delete(opened: Opened, keys: list[str]) -> None:
    try:
        opened.library.delete(opened.store, keys)
    except FileNotFoundError:
        # Google's error for what is gone, as for a console's object "step-1/deeper/", whose last
        # slash obstore cuts. It ends the request of many.
        for key in keys:
            with suppress(FileNotFoundError):
                opened.library.delete(opened.store, key)


def _keys(opened: Opened, place: StoreUrl) -> list[str]:
    prefix = f"{place.key}/"
    with named(place):
        pages = opened.library.list(opened.store, prefix=prefix, chunk_size=_AT_ONCE)
        keys = [str(meta["path"]) for page in pages for meta in page]
    # The place's own "step-1/" without its slash: the name of an object that is no version's.
    return [key for key in keys if key.startswith(prefix)]
