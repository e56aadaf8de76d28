"""A model's rules to rename a checkpoint's tensors, in a form that needs no vLLM.

The parts of a multimodal model have different names on the Hub, in transformers and in vLLM, and
vLLM's mapper translates all to its own. For the names that the boot read, the rules must give
exactly the mapper's result, which must be a part of the model.
"""

import re
from collections.abc import Iterable
from typing import Any

from rlfleet_contract.engine.tensor_names import Renames

_KINDS = ("regex", "substr", "prefix", "suffix")


def renames_of(model: Any, read: Iterable[str]) -> Renames | None:
    """Return a model's rules; None if it has none, or rules without an exact equivalent."""
    mapper: Any = getattr(model, "hf_to_vllm_mapper", None)
    if not hasattr(mapper, "get_rename_mapper") or getattr(mapper, "orig_to_new_renaming", None):
        return None
    naming = mapper.get_rename_mapper()
    try:
        renames = Renames(**{kind: _rules(naming, kind) for kind in _KINDS})
        is_exact = all(renames.of(name) == _mapped(naming, name) for name in read)
    except re.error:
        return None
    parts = {name for name, _ in model.named_children()}
    taken = [name for name in read if _mapped(mapper, name) is not None]
    leads = all(renames.of(name).partition(".")[0] in parts for name in taken)
    return renames if is_exact and leads else None


def _mapped(mapper: Any, name: str) -> str | None:
    """Return vLLM's name; None if vLLM drops the tensor. Every release has apply_list."""
    return next(iter(mapper.apply_list([name])), None)


def _rules(naming: Any, kind: str) -> tuple[tuple[str, str], ...]:
    """Return the rules of one kind, compiled patterns as text."""
    rules = getattr(naming, f"orig_to_new_{kind}").items()
    return tuple((getattr(old, "pattern", old), new) for old, new in rules)
