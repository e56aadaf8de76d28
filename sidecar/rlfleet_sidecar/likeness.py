"""Is a checkpoint one of the boot model's architecture? Pure, over headers and configs.

vLLM boots only if each parameter got a tensor, and reloads with a warning if some did
not. So names must be the boot checkpoint's: then the same parameters are covered. Shapes
must be equal. Dtypes must be equal but among the three floating types that vLLM casts
into the serving dtype when it copies (a trainer may keep float32 where the Hub had
bfloat16); casting an integer or a quantised type would change its meaning.

A head that is tied to the embeddings is one tensor under two names: the Hub's files list
one, and the state_dict of a trainer both. vLLM keeps one storage for the two.
"""

from collections.abc import Iterable, Mapping

from rlfleet_contract.tensors import Tensor
from rlfleet_sidecar import configs

_CAST = frozenset({"BF16", "F16", "F32"})
_TIED = "lm_head.weight"
_EMBEDDINGS = "embed_tokens.weight"
_NAMED_DIFFERENCES = 3


def differences(
    model: Mapping[str, Tensor], found: Mapping[str, Tensor], *, tied: bool
) -> str | None:
    """Tell the first differences of a checkpoint from the boot model; None if there are none."""
    model, optional = (_with_head(model), {_TIED}) if tied else (model, set())
    missing = model.keys() - found.keys() - optional
    unknown = found.keys() - model.keys()
    wrong = [
        told
        for name in sorted(found.keys() & model.keys())
        if (told := _difference(model[name], found[name]))
    ]
    parts = [
        _first("tensors are missing", sorted(missing)),
        _first("tensors are unknown to the model", sorted(unknown)),
        _first("tensors differ from the model", wrong),
    ]
    return "; ".join(part for part in parts if part) or None


def config_differences(model: Mapping[str, object], found: Mapping[str, object]) -> str | None:
    """Tell why a checkpoint's own config.json does not go with the boot model, from both files."""
    return configs.code_objection(model, found) or configs.differences(model, found)


def _with_head(model: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Describe the head of a model that is tied by its embeddings, if nothing else does."""
    embeddings = [tensor for name, tensor in model.items() if name.endswith(_EMBEDDINGS)]
    return {_TIED: embeddings[0], **model} if embeddings else model


def _difference(model: Tensor, found: Tensor) -> str | None:
    if model.shape != found.shape:
        return f"{found.name} has shape {list(found.shape)}, not {list(model.shape)}"
    if model.dtype != found.dtype and not {model.dtype, found.dtype} <= _CAST:
        return f"{found.name} has dtype {found.dtype}, not {model.dtype}"
    return None


def _first(what: str, items: Iterable[str]) -> str:
    named = list(items)
    if not named:
        return ""
    more = ", …" if len(named) > _NAMED_DIFFERENCES else ""
    return f"{len(named)} {what} ({', '.join(named[:_NAMED_DIFFERENCES])}{more})"
