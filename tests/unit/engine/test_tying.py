"""What a reload is fed of parameters that have two names."""

from collections.abc import Iterator
from types import SimpleNamespace

from rlfleet_engine.tying import packed_names, under_all_names

HEAD, EMBEDDINGS, NORM = "lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"


class Model:
    """A model whose head is its embeddings."""

    def __init__(self, device: str) -> None:
        self._tied = SimpleNamespace(device=SimpleNamespace(type=device))
        self._norm = SimpleNamespace(device=SimpleNamespace(type=device))

    def named_parameters(self, *, remove_duplicate: bool) -> Iterator[tuple[str, SimpleNamespace]]:
        assert not remove_duplicate
        yield from ((EMBEDDINGS, self._tied), (NORM, self._norm), (HEAD, self._tied))


def test_a_tied_head_has_a_copy_of_its_own_on_a_cpu_alone() -> None:
    assert packed_names(Model("cpu")) == {HEAD: EMBEDDINGS}
    assert packed_names(Model("cuda")) == {}


def test_a_head_that_a_version_does_not_list_is_fed_from_its_embeddings_at_the_end() -> None:
    tensors = [(EMBEDDINGS, "e"), (NORM, "n")]

    assert list(under_all_names(tensors, {HEAD: EMBEDDINGS})) == [*tensors, (HEAD, "e")]
    assert list(under_all_names(tensors, {})) == tensors


def test_what_a_version_lists_is_fed_once() -> None:
    tensors = [(HEAD, "h"), (EMBEDDINGS, "e"), (NORM, "n")]

    assert list(under_all_names(tensors, {HEAD: EMBEDDINGS})) == tensors
    assert list(under_all_names([(NORM, "n")], {HEAD: EMBEDDINGS})) == [(NORM, "n")]
