"""Modules that a model's loader replaces by another of its modules at the first load.

The loader of Phi-3-V does so with its embeddings. vLLM loads a module only by the first of its
names, so the next load would skip the name that the files have. A reload must begin without such
a replacement, as the boot did; the loader makes it again.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any


def parts(model: Any) -> dict[str, Any]:
    """Return the modules of a model by all their names, in vLLM's order."""
    return dict(model.named_modules(remove_duplicate=False))


def made(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """Return the names that a load gave to a module of another name, and that now come first."""
    first: dict[int, str] = {}
    found: list[str] = []
    for name, part in after.items():
        earlier = first.setdefault(id(part), name)
        is_replaced = before.get(earlier, part) is not part
        if is_replaced and before.get(name) is part and not _is_within(earlier, found):
            found.append(earlier)
    return found


def _is_within(name: str, found: list[str]) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in found)


def without(model: Any, names: list[str], load: Callable[..., Any]) -> Callable[..., Any]:
    """Return a model's loader that begins without these names, as the load at boot did."""

    @wraps(load)
    def loading(*arguments: Any, **named: Any) -> Any:
        with _taken_off(model, names):
            return load(*arguments, **named)

    return loading


@contextmanager
def _taken_off(model: Any, names: list[str]) -> Iterator[None]:
    """Empty the places of these names; a place keeps its order, and gets its module back."""
    split = [name.rpartition(".") for name in names]
    places = [(model.get_submodule(path), own) for path, _, own in split]
    held = [owner._modules[own] for owner, own in places]
    for owner, own in places:
        owner._modules[own] = None
    try:
        yield
    finally:
        for (owner, own), part in zip(places, held, strict=True):
            if owner._modules.get(own) is None:
                owner._modules[own] = part
