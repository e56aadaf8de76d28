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
_PLAIN = frozenset({"WeightRenaming", "PrefixChange"})
"""Renamings of transformers that depend on a name alone, not on the names before it."""
_GROUP = r"\1"
_Rules = tuple[tuple[str, str], ...]


def renames_of(model: Any, read: Iterable[str]) -> Renames | None:
    """Return a model's rules; None if it has none, or rules without an exact equivalent."""
    mapper: Any = getattr(model, "hf_to_vllm_mapper", None)
    first = _of_transformers(getattr(mapper, "orig_to_new_renaming", ()))
    if not hasattr(mapper, "get_rename_mapper") or first is None:
        return None
    naming = mapper.get_rename_mapper()
    rules = {kind: _rules(naming, kind) for kind in _KINDS}
    try:
        renames = Renames(**rules | {"regex": first + rules["regex"]})
        is_exact = all(renames.of(name) == _mapped(naming, name) for name in read)
    except re.error:
        return None
    parts = {name for name, _ in model.named_children()}
    taken = [name for name in read if _mapped(mapper, name) is not None]
    leads = all(renames.of(name).partition(".")[0] in parts for name in taken)
    return renames if is_exact and leads else None


def _of_transformers(renamings: Iterable[Any]) -> _Rules | None:
    """Return the renamings of a model that transformers runs; None if one is no plain pattern."""
    found = []
    for one in renamings:
        if type(one).__name__ not in _PLAIN or one.scope_prefix is not None:
            return None
        sources, targets = one.source_patterns, one.target_patterns
        is_grouped = _GROUP in targets[0]
        is_text = "\\" not in targets[0].replace(_GROUP, "")
        if len(targets) > 1 or not is_text or (is_grouped and len(sources) > 1):
            return None
        found.append(("|".join(f"(?:{source})" for source in sources), targets[0]))
    return tuple(found)


def _mapped(mapper: Any, name: str) -> str | None:
    """Return vLLM's name; None if vLLM drops the tensor. Every release has apply_list."""
    return next(iter(mapper.apply_list([name])), None)


def _rules(naming: Any, kind: str) -> _Rules:
    """Return the rules of one kind, compiled patterns as text."""
    rules = getattr(naming, f"orig_to_new_{kind}").items()
    return tuple((getattr(old, "pattern", old), new) for old, new in rules)
