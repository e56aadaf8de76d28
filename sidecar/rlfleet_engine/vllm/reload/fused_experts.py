"""Which layers of experts vLLM loads in two forms: fused in two tensors, or one by one.

transformers computes with fused experts, but most checkpoints hold each expert by itself. vLLM's
loader of such a layer accepts both forms. Some models bypass it and accept only the form of
their checkpoint. Only the code of each architecture says which, so this module watches the load
at boot. It must report only layers that this loader has filled.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple

from rlfleet_contract.engine.tensor_names import Experts

_LOAD = "load_weights"
_INNER = ".routed_experts"
"""vLLM's inner layer, without which the name is that of a checkpoint."""
_GATE, _DOWN, _UP = "w1", "w2", "w3"
"""vLLM's names for the parts of an expert."""


class FilledExperts(NamedTuple):
    """A layer of experts that vLLM's loader has filled, and the forms that it accepts."""

    layer: Any
    experts: Experts


@contextmanager
def noted(model: Any, filled: list[FilledExperts]) -> Iterator[None]:
    """Record the layers of experts that vLLM's loader fills in this context."""
    watched = [
        (name, layer)
        for name, layer in model.named_modules()
        if hasattr(type(layer), _LOAD) and hasattr(layer, "get_expert_mapping")
    ]
    for name, layer in watched:
        vars(layer)[_LOAD] = _noting(name, layer, filled)
    try:
        yield
    finally:
        for _, layer in watched:
            vars(layer).pop(_LOAD, None)


def experts_of(model: Any, filled: Iterable[FilledExperts]) -> Experts | None:
    """Return the filled layers of a model; None without one, or if their forms differ."""
    parts = {id(part) for part in model.modules()}
    own = [one.experts for one in filled if id(one.layer) in parts]
    places = sorted({place for one in own for place in one.places})
    alike = {one.model_copy(update={"places": tuple(places)}) for one in own}
    return alike.pop() if len(alike) == 1 else None


def _noting(name: str, layer: Any, filled: list[FilledExperts]) -> Any:
    load = getattr(layer, _LOAD)

    @wraps(load)
    def noting(weights: Iterable[tuple[str, Any]]) -> Any:
        experts = _forms(name.removesuffix(_INNER), layer)
        if experts is not None and not any(one.layer is layer for one in filled):
            filled.append(FilledExperts(layer, experts))
        return load(weights)

    return noting


def _forms(place: str, layer: Any) -> Experts | None:
    """Return both forms from the loader's table; None if it has only one."""
    try:
        table = layer.get_expert_mapping(include_fused=True)
    except TypeError:  # a release whose loader takes one form
        return None
    named = [(weight.partition("experts.")[2], shard) for _, weight, _, shard in table]
    fused = {shard: name for name, shard in named if not name[:1].isdigit()}
    # Single tensors come last in the table, after those that combine gate and up.
    single = {shard: name[2:].rstrip(".") for name, shard in named if name.startswith("0.")}
    if not fused.keys() == single.keys() == {_GATE, _DOWN, _UP} or fused[_GATE] != fused[_UP]:
        return None
    return Experts(
        places=(place,),
        gate=single[_GATE],
        up=single[_UP],
        down=single[_DOWN],
        fused_gate_up=fused[_GATE],
        fused_down=fused[_DOWN],
        transposed=bool(getattr(layer, "is_fused_checkpoint_transposed", False)),
    )
