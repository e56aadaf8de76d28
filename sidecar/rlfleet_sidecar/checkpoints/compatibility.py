"""Is a checkpoint one of the boot model's architecture? Pure, over headers and configs.

vLLM boots only if each parameter got a tensor, and reloads with a warning if some did not. So a
version holds each tensor that the boot read (state/required_tensors.py), under the same name:
then the same parameters are covered. It may hold what the boot model's files list besides. Shapes
must be equal. Dtypes must be equal but among the three floating types that vLLM casts into the
serving dtype when it copies (a trainer may keep float32 where the Hub had bfloat16); casting an
integer or a quantised type would change its meaning.

A head that is tied to the embeddings is one tensor under two names: the Hub's files list one, and
the state_dict of a trainer both. vLLM keeps one storage for the two.
"""

from collections.abc import Iterable, Iterator, Mapping

from rlfleet_contract.engine.safetensors import Tensor
from rlfleet_contract.engine.tensor_names import Renames
from rlfleet_sidecar.checkpoints import config_rules, fused_experts
from rlfleet_sidecar.state.required_tensors import HEAD, Needs

_CAST = frozenset({"BF16", "F16", "F32"})
_EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight")
_NAMED_DIFFERENCES = 3
_TRANSPOSED = ", and is transposed"
_WAY_OUT = "write the version with the names of the boot model's files"
_AS_SAVED = f"{_WAY_OUT}, as transformers' save_pretrained does"
_LAYOUT = f"{_WAY_OUT} and in their layout"


def differences(
    model: Mapping[str, Tensor], found: Mapping[str, Tensor], needs: Needs
) -> str | None:
    """Tell the first differences of a checkpoint from the boot model; None if there are none."""
    if needs.experts is not None:
        model = fused_experts.in_form_of(model, found, needs.experts, needs.renames)
    if needs.renames is not None:
        found = _under_base_names(model, found, needs.renames)
    known = _with_heads(model, found) if needs.tied else model
    missing = sorted(model.keys() - found.keys() - set(needs.optional))
    unknown = sorted(found.keys() - known.keys())
    wrong = [
        told
        for name in sorted(found.keys() & known.keys())
        if (told := _difference(known[name], found[name]))
    ]
    parts = [
        *_other_names(missing, unknown, is_known=needs.boot is not None),
        _first("tensors differ from the model", wrong),
        _way_out(missing, unknown, wrong),
    ]
    return "; ".join(part for part in parts if part) or None


def _way_out(missing: list[str], unknown: list[str], wrong: list[str]) -> str:
    """Advise how to write the version; empty if its names and layout are not what differs."""
    if any(one.endswith(_TRANSPOSED) for one in wrong):
        return _LAYOUT
    return _AS_SAVED if missing and unknown else ""


def _other_names(missing: list[str], unknown: list[str], *, is_known: bool) -> Iterator[str]:
    if (
        missing
        and unknown
        and (told := fused_experts.objection(missing, unknown, is_known=is_known))
    ):
        yield told
        return
    yield _first("tensors are missing", missing)
    yield _first("tensors are unknown to the model", unknown)


def vocabulary(tensors: Mapping[str, Tensor]) -> int | None:
    """Tell how many tokens the embeddings have; None if there are none by a known name."""
    embeddings = _embeddings(tensors)
    return embeddings.shape[0] if embeddings is not None and embeddings.shape else None


def config_differences(model: Mapping[str, object], found: Mapping[str, object]) -> str | None:
    """Tell why a checkpoint's own config.json does not go with the boot model, from both files."""
    return config_rules.code_objection(model, found) or config_rules.differences(model, found)


def _under_base_names(
    model: Mapping[str, Tensor], found: Mapping[str, Tensor], renames: Renames
) -> Mapping[str, Tensor]:
    """Name tensors as the base model does where the engine knows both names as one."""
    if found.keys() <= model.keys():
        return found
    ours = {renames.of(name): name for name in model}
    renamed = {
        name if name in model else ours.get(renames.of(name), name): tensor
        for name, tensor in found.items()
    }
    # Two for one parameter, on either side: nobody knows which of them would stand.
    is_exact = len(ours) == len(model) and len(renamed) == len(found)
    return renamed if is_exact else found


def _with_heads(model: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Describe the heads of a version by the embeddings that they are tied to."""
    embeddings = _embeddings(model)
    if embeddings is None:
        return model
    return {name: embeddings for name in found if HEAD.search(name)} | dict(model)


def _embeddings(tensors: Mapping[str, Tensor]) -> Tensor | None:
    return next((one for name, one in tensors.items() if name.endswith(_EMBEDDINGS)), None)


def _difference(model: Tensor, found: Tensor) -> str | None:
    if model.shape != found.shape:
        why = _TRANSPOSED if found.shape == _turned(model.shape) else ""
        return f"{found.name} has shape {list(found.shape)}, not {list(model.shape)}{why}"
    if model.dtype != found.dtype and not {model.dtype, found.dtype} <= _CAST:
        return f"{found.name} has dtype {found.dtype}, not {model.dtype}"
    return None


def _turned(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-2], *shape[:-3:-1])


def _first(what: str, items: Iterable[str]) -> str:
    named = list(items)
    if not named:
        return ""
    more = ", …" if len(named) > _NAMED_DIFFERENCES else ""
    return f"{len(named)} {what} ({', '.join(named[:_NAMED_DIFFERENCES])}{more})"
