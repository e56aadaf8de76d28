"""Deltas are folded into exactly the trainer's tensors."""

from functools import partial
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlfleet_sidecar.errors import SidecarError
from tests.fakes.checkpoints import SHAPES, write_file, write_model
from tests.fakes.deltas.indexed import write_chain, write_delta
from tests.fakes.deltas.shard import Shard, rewritten
from tests.fakes.deltas.skyrl import write_skyrl
from tests.fakes.deltas.tensors import Tensors, tensors_of, trained
from tests.unit.rlfleet_sidecar.deltas.conftest import Folded, folded

WRONG = dict.fromkeys(SHAPES, "0" * 32)


def names(count: int) -> list[str]:
    return [f"weight_v{number:06d}" for number in range(1, count + 1)]


@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
@pytest.mark.parametrize("algorithm", ["xxh3-128", "blake3", "adler32"])
def test_a_chain_makes_the_trainer_s_tensors(
    encoding: str, algorithm: str, base: Tensors, weights: Path, fold: Folded
) -> None:
    states = write_chain(weights, base, 3, encoding=encoding, algorithm=algorithm, shards=2)

    assert fold(names(3)) == states[-1]


def test_encodings_and_checksums_may_change_within_a_chain(
    base: Tensors, weights: Path, fold: Folded
) -> None:
    one, two, three = (trained(base, seed) for seed in (1, 2, 3))
    write_delta(weights, 1, base, one, encoding="overwrite", algorithm="adler32")
    write_delta(weights, 2, one, two, encoding="xor", algorithm="blake3")
    write_delta(weights, 3, two, three, encoding="overwrite")

    assert fold(names(3)) == three


def test_a_long_chain_is_folded_in_several_passes(
    base: Tensors, weights: Path, fold: Folded
) -> None:
    states = write_chain(weights, base, 5)

    assert fold(names(5)[:2], names(5)[2:4], names(5)[4:]) == states[-1]


def test_a_delta_that_changes_nothing_is_a_version(
    base: Tensors, weights: Path, fold: Folded
) -> None:
    write_delta(weights, 1, base, base)

    assert fold(names(1)) == base


def test_only_changed_tensors_are_published(base: Tensors, weights: Path, fold: Folded) -> None:
    new = base | {"model.norm.weight": trained(base, 1)["model.norm.weight"]}
    write_delta(weights, 1, base, new)

    assert fold(names(1)) == new


def test_only_the_last_checksum_of_a_tensor_counts(
    base: Tensors, weights: Path, fold: Folded
) -> None:
    one, two = trained(base, 1), trained(base, 2)
    write_delta(weights, 1, base, one)
    write_delta(weights, 2, one, two, encoding="overwrite")

    rewritten(weights / "weight_v000001", lambda shard: shard.metadata.update(WRONG))

    assert fold(names(2)) == two
    with pytest.raises(SidecarError, match="expected 0000"):
        fold(names(1))


def test_a_delta_of_another_base_is_rejected(base: Tensors, weights: Path, fold: Folded) -> None:
    other = trained(base, 7)
    write_delta(weights, 1, other, trained(other, 1))

    with pytest.raises(SidecarError, match="began with this fleet's base model") as caught:
        fold(names(1))

    assert caught.value.code == "DigestMismatch"


def test_a_delta_applied_twice_is_rejected(base: Tensors, weights: Path, fold: Folded) -> None:
    write_chain(weights, base, 1)

    with pytest.raises(SidecarError, match="expected"):
        fold([*names(1), *names(1)])


def test_deltas_in_the_wrong_order_are_rejected(base: Tensors, weights: Path, fold: Folded) -> None:
    write_chain(weights, base, 2, encoding="overwrite")

    with pytest.raises(SidecarError) as caught:
        fold(list(reversed(names(2))))

    assert caught.value.code == "DigestMismatch"


def test_skyrl_s_tied_head_is_left_out(weights: Path, tmp_path: Path) -> None:
    tied = {name: shape for name, shape in SHAPES.items() if name != "lm_head.weight"}
    (tmp_path / "tied").mkdir()
    write_file(tmp_path / "tied" / "model.safetensors", tied, 0)
    base = tensors_of(tmp_path / "tied")
    new = trained(base, 1)
    write_skyrl(weights, 1, base, new | {"lm_head.weight": new["model.embed_tokens.weight"]})

    assert folded(tmp_path / "tied", weights, tmp_path / "draft", [["delta-00000001"]]) == new


@pytest.mark.parametrize("unknown", ["model.language_model.norm.weight", "draft.lm_head.weight"])
def test_skyrl_s_tensors_that_the_base_model_lacks_are_rejected(
    base: Tensors, weights: Path, fold: Folded, unknown: str
) -> None:
    write_skyrl(weights, 1, base, trained(base, 1) | {unknown: b"\1" * 16})

    with pytest.raises(SidecarError, match=f"changes tensor {unknown}, which the base model lacks"):
        fold(["delta-00000001"])


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["xor", "overwrite"]),
        st.sampled_from(["xxh3-128", "blake3", "adler32"]),
        st.sampled_from([0, 0.001, 0.3, 1]),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=40, deadline=None)
@given(STEPS, st.integers(1, 5))
def test_any_chain_in_any_passes_makes_the_last_tensors(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, str, float, int]],
    at_once: int,
) -> None:
    room = tmp_path_factory.mktemp("room")
    model = write_model(room / "model")
    tensors = tensors_of(model)
    for number, (encoding, algorithm, density, shards) in enumerate(steps, 1):
        new = changed_anywhere(tensors, number, density)
        form = partial(write_delta, encoding=encoding, algorithm=algorithm, shards=shards)
        form(room / "weights", number, tensors, new)
        tensors = new
    chain = names(len(steps))
    passes = [chain[begin : begin + at_once] for begin in range(0, len(chain), at_once)]

    assert folded(model, room / "weights", room / "draft", passes) == tensors


def changed_anywhere(tensors: Tensors, seed: int, density: float) -> Tensors:
    """Change any bytes to any others, first and last ones too; some tensors stay."""
    random = Random(seed)  # noqa: S311 - no secret
    new = dict(tensors)
    for name, data in tensors.items():
        if random.random() < 0.3:
            continue
        changed = bytearray(data)
        for place in {
            0,
            len(data) - 1,
            *random.choices(range(len(data)), k=int(len(data) * density)),
        }:
            changed[place] = random.randrange(256)
        new[name] = bytes(changed)
    return new


@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
def test_a_tensor_of_many_pieces_is_folded(encoding: str, tmp_path: Path) -> None:
    size = 3 * 1024 * 1024 + 5
    before = Random(1).randbytes(size)  # noqa: S311 - no secret
    after = changed_anywhere({"a": before, "b": b"x"}, 9, 0.3) | {"b": b"y"}
    (tmp_path / "model").mkdir()
    Shard({"b": b"x", "a": before}).write(tmp_path / "model" / "model.safetensors")
    write_delta(tmp_path, 1, {"a": before, "b": b"x"}, after, encoding=encoding)

    assert folded(tmp_path / "model", tmp_path, tmp_path / "draft", [names(1)]) == after
