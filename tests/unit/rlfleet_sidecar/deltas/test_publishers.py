"""Deltas that the publishers' own code wrote (dev/delta_fixtures.py) are read as they mean them."""

from pathlib import Path

import pytest

from dev.delta_fixtures import STEPS, states
from rlfleet.publish import Options, Publisher, PublishError, layout
from rlfleet_sidecar.deltas.formats.delta import BadDeltaError
from rlfleet_sidecar.deltas.formats.names import SKYRL, WEIGHTS, Series
from rlfleet_sidecar.deltas.formats.pointer import pointer_of
from tests.fakes.checkpoints import SHAPES
from tests.fakes.deltas.shard import Shard
from tests.fakes.deltas.tensors import Tensors
from tests.unit.rlfleet_sidecar.deltas.conftest import folded

FIXTURES = Path(__file__).parent / "publishers"


@pytest.mark.parametrize(
    ("root", "series"),
    [
        ("slime-xor-xxh3-128", WEIGHTS),
        ("slime-xor-adler32", WEIGHTS),
        ("slime-overwrite-blake3", WEIGHTS),
        ("miles-xor-xxh3-128", WEIGHTS),
        ("miles-xor-adler32", WEIGHTS),
        ("miles-overwrite-blake3", WEIGHTS),
        ("stitch/updates", WEIGHTS),
        ("skyrl", SKYRL),
    ],
)
@pytest.mark.parametrize("target", range(1, STEPS + 1))
def test_a_chain_makes_what_its_trainer_had(
    root: str, series: Series, target: int, model: Path, tmp_path: Path
) -> None:
    chain = [series.name(number) for number in range(1, target + 1)]

    found = folded(model, FIXTURES / root, tmp_path / "draft", [chain])

    assert found == states(model)[target]


def test_stitch_s_pointer_names_its_newest_version() -> None:
    found = pointer_of((FIXTURES / "stitch" / "latest").read_bytes())

    assert (found.run, found.number) == ("run-1", STEPS)


@pytest.mark.parametrize("run", ["run-1", "7", "0._-", "a" * 128])
def test_a_run_that_our_publisher_accepts_is_read_in_its_pointer(run: str) -> None:
    pointer = layout.pointer_to(Options(run=run).run, 7).encode()

    assert pointer_of(pointer).run == run


@pytest.mark.parametrize("run", ["_run", ".run", "-run", "a" * 129, "run 1", "run\n"])
def test_a_run_that_no_pointer_may_name_is_refused_before_it_is_published(run: str) -> None:
    with pytest.raises(BadDeltaError):
        pointer_of(layout.pointer_to(run, 7).encode())
    with pytest.raises(PublishError, match="expected a letter or digit, then"):
        Options(run=run)


@pytest.mark.parametrize("encoding", ["xor", "overwrite", "auto"])
@pytest.mark.parametrize("checksum", ["xxh3-128", "blake3"])
def test_our_own_publisher_s_deltas_are_read(
    encoding: str, checksum: str, model: Path, weights: Path, tmp_path: Path
) -> None:
    options = Options(base=model, encoding=encoding, checksum=checksum, shard_nbytes=300)
    steps = states(model)[1:]
    with Publisher(weights, options) as publisher:
        versions = [
            publisher.publish(trainer_files(tmp_path / f"trainer-{number}", tensors))
            for number, tensors in enumerate(steps)
        ]

    assert not any(version.is_full for version in versions)
    chain = [version.name for version in versions]
    assert folded(model, weights, tmp_path / "draft", [chain]) == steps[-1]


def trainer_files(directory: Path, tensors: Tensors) -> Path:
    """Write tensors as a trainer saves them."""
    directory.mkdir()
    shapes = {name: list(SHAPES[name]) for name in tensors}
    Shard(tensors, dtype="BF16", shapes=shapes).write(directory / "model.safetensors")
    return directory
