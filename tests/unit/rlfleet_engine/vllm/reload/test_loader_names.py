"""Loaders get the name that vLLM's reload asks for."""

from functools import partial
from types import SimpleNamespace

from rlfleet_engine.vllm.reload.loader_names import name_loaders


def shard(param: object, loaded: object, rank: int) -> tuple[object, object, int]:
    return param, loaded, rank


def test_a_partial_function_gets_a_name_and_loads_as_before() -> None:
    norm = SimpleNamespace(weight_loader=partial(shard, rank=1))

    name_loaders([norm])

    assert norm.weight_loader.__name__ == "partial"
    assert norm.weight_loader("param", "loaded") == ("param", "loaded", 1)


def test_a_loader_with_a_name_keeps_it_and_a_tensor_without_one_is_left() -> None:
    weight, buffer = SimpleNamespace(weight_loader=shard), SimpleNamespace()

    name_loaders([weight, buffer])

    assert weight.weight_loader.__name__ == "shard"
    assert vars(buffer) == {}
