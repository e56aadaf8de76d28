"""A reload begins without the modules that the loader at boot replaced by others."""

from collections.abc import Callable, Iterator

import pytest

from rlfleet_engine.vllm.reload.aliases import made, parts, without

OWN, INNER, OTHER = "own", "inner", "other"


class Module:
    """As much of torch's module as is asked."""

    def __init__(self, **children: "Module") -> None:
        self._modules: dict[str, Module | None] = dict(children)

    def named_modules(
        self, *, remove_duplicate: bool, prefix: str = ""
    ) -> Iterator[tuple[str, "Module"]]:
        assert not remove_duplicate
        yield prefix, self
        for name, child in self._modules.items():
            if child is not None:
                path = f"{prefix}.{name}" if prefix else name
                yield from child.named_modules(remove_duplicate=False, prefix=path)

    def get_submodule(self, path: str) -> "Module":
        found: Module = parts(self)[path]
        return found


class Model(Module):
    """Phi-3-V: its loader shares the inner model's embeddings, and fails on a shared name."""

    def __init__(self) -> None:
        super().__init__(embed=Module(), inner=Module(embed=Module()))

    def load_weights(self, name: str) -> None:
        names: dict[int, str] = {}
        for path, part in parts(self).items():
            names.setdefault(id(part), path)
        if name not in names.values():
            raise ValueError(f"{name!r} was skipped because it is tied")
        self._modules["embed"] = self.get_submodule("inner.embed")


def booted() -> tuple[Model, list[str]]:
    model = Model()
    before = parts(model)
    model.load_weights("inner.embed")
    return model, made(before, parts(model))


def test_a_loader_that_shares_a_module_can_load_again() -> None:
    model, names = booted()
    places = list(parts(model))
    with pytest.raises(ValueError, match="tied"):
        model.load_weights("inner.embed")

    load: Callable[..., object] = without(model, names, model.load_weights)
    load("inner.embed")
    load("inner.embed")

    assert names == ["embed"]
    assert model.get_submodule("embed") is model.get_submodule("inner.embed")
    assert list(parts(model)) == places


def test_a_failed_load_keeps_the_shared_module() -> None:
    model, names = booted()

    with pytest.raises(ValueError, match="tied"):
        without(model, names, model.load_weights)("unknown")

    assert model.get_submodule("embed") is model.get_submodule("inner.embed")


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({"a": OWN, "b": INNER}, {"a": INNER, "b": INNER}, ["a"]),
        # vLLM skips the later name.
        ({"b": INNER, "a": OWN}, {"b": INNER, "a": INNER}, []),
        # Tied when it was made, as the boot found it.
        ({"a": INNER, "b": INNER}, {"a": INNER, "b": INNER}, []),
        # Replaced by a module that has no other name.
        ({"a": OWN, "b": INNER}, {"a": OTHER, "b": INNER}, []),
        # Both names are new to it.
        ({"a": OWN, "b": INNER}, {"a": OTHER, "b": OTHER}, []),
        ({"b": INNER}, {"a": INNER, "b": INNER}, []),
        # What is in a replaced module goes with it.
        (
            {"a": OWN, "a.c": "own c", "b": INNER, "b.c": OTHER},
            {"a": INNER, "a.c": OTHER, "b": INNER, "b.c": OTHER},
            ["a"],
        ),
        # Of three names, only the first decides.
        ({"a": OWN, "b": INNER, "c": INNER}, {"a": INNER, "b": INNER, "c": INNER}, ["a"]),
    ],
)
def test_a_name_that_the_load_gave_and_that_comes_first(
    before: dict[str, str], after: dict[str, str], found: list[str]
) -> None:
    assert made(before, after) == found
