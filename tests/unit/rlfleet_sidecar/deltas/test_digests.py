"""A version has the tensors that its publisher had, also those that its delta does not change."""

import json
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from rlfleet.publish import Options, Publisher
from rlfleet_contract.worker.commands import PrepareRequest
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.cache.store import VersionStore
from rlfleet_sidecar.checkpoints.check import Checkpoints
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.staging.prepare_job import PrepareJob
from tests.fakes.checkpoints import CONFIG, SHAPES, write_file
from tests.fakes.deltas.indexed import INDEX, write_delta
from tests.fakes.deltas.tensors import Tensors, tensors_of, trained

FROZEN = "model.embed_tokens.weight"
Taken = Callable[[str], Tensors]


@pytest.fixture
def taken(model: Path, weights: Path, tmp_path: Path) -> Taken:
    settings = SidecarSettings(
        model_name="fake",
        model_path=model,
        weights_path=f"{weights}/{{version}}",
        cache_dir=tmp_path / "cache",
        cache_spare=0,
    )
    store = VersionStore(settings, Checkpoints(settings))

    def take(version: str) -> Tensors:
        request = PrepareRequest(operation="o", version=version, wait_s=0)
        store.prepare(PrepareJob(version, 30), request, frozenset)
        return tensors_of(store.demand(version).directory)

    return take


def saved(folder: Path, tensors: Tensors, shapes: dict[str, tuple[int, ...]] = SHAPES) -> Path:
    """Save a trainer's tensors as a checkpoint."""
    folder.mkdir()
    path = folder / "model.safetensors"
    write_file(path, shapes, 0)
    body = b"".join(tensors[name] for name in shapes)
    path.write_bytes(path.read_bytes()[: -len(body)] + body)
    return folder


def stepped(tensors: Tensors, seed: int) -> Tensors:
    return trained(tensors, seed) | {FROZEN: tensors[FROZEN]}


def refused(taken: Taken, version: str) -> str:
    with pytest.raises(SidecarError, match="by its index") as caught:
        taken(version)
    assert caught.value.code is Code.DIGEST_MISMATCH
    return caught.value.message


def test_a_delta_of_another_base_model_is_rejected_though_only_frozen_tensors_differ(
    taken: Taken, base: Tensors, weights: Path, tmp_path: Path
) -> None:
    other = base | {FROZEN: trained(base, 7)[FROZEN]}
    options = Options(base=saved(tmp_path / "other", other))
    one = saved(tmp_path / "one", stepped(other, 1))

    with Publisher(weights, options) as publisher:
        assert not publisher.publish(one).is_full

    assert str(weights / "weight_v000001") in refused(taken, "weight_v000001")


def test_each_delta_of_the_base_model_and_each_full_version_is_taken(
    taken: Taken, model: Path, base: Tensors, weights: Path, tmp_path: Path
) -> None:
    states = [base]
    options = Options(base=model, snapshot=tmp_path / "snapshot", anchor_every=3)
    for number in range(1, 5):
        states.append(stepped(states[-1], number))
        folder = saved(tmp_path / f"step-{number}", states[-1])
        # As a trainer that starts again each time.
        with Publisher(weights, options) as publisher:
            publisher.publish(folder)

        assert taken(f"weight_v{number:06d}") == states[-1]


def test_a_full_version_with_other_bytes_is_rejected_and_so_are_its_deltas(
    taken: Taken, base: Tensors, weights: Path, tmp_path: Path
) -> None:
    full = stepped(base, 1)
    with Publisher(weights) as publisher:
        publisher.publish(saved(tmp_path / "full", full))
        publisher.publish(saved(tmp_path / "next", stepped(full, 2)))
    path = next((weights / "weight_v000001").glob("*.safetensors"))
    path.write_bytes(path.read_bytes().replace(full[FROZEN], trained(full, 9)[FROZEN]))

    refused(taken, "weight_v000001")
    refused(taken, "weight_v000002")


def test_a_publisher_may_leave_out_what_the_engine_ignores(
    taken: Taken, base: Tensors, model: Path, weights: Path, tmp_path: Path
) -> None:
    ignored = "model.layers.0.self_attn.rotary_emb.inv_freq"
    write_file(model / "model.safetensors", {**SHAPES, ignored: (4,)}, 0)
    own = saved(tmp_path / "own", base)
    (own / "config.json").write_text(json.dumps(CONFIG))
    one = stepped(base, 1)

    with Publisher(weights, Options(base=own)) as publisher:
        publisher.publish(saved(tmp_path / "one", one))

    assert taken("weight_v000001").items() >= one.items()


@pytest.mark.parametrize("digest", [None, 7, "sha3:00", ""])
def test_a_digest_of_another_kind_is_not_compared(
    taken: Taken, base: Tensors, weights: Path, tmp_path: Path, digest: object
) -> None:
    with Publisher(weights) as publisher:
        publisher.publish(saved(tmp_path / "full", base))
    path = weights / "weight_v000001" / INDEX
    index = json.loads(path.read_text())
    index["metadata"]["digest"] = digest
    path.write_text(json.dumps(index))

    assert taken("weight_v000001") == base


@pytest.mark.parametrize("is_held", [False, True], ids=["of the volume", "of the cache"])
def test_deltas_of_two_runs_in_one_directory_are_not_joined(
    taken: Taken, base: Tensors, weights: Path, *, is_held: bool
) -> None:
    """slime's have no digest of a version, and here no tensor in common whose checksum differs."""
    one = base | {FROZEN: trained(base, 1)[FROZEN]}
    two = one | {"lm_head.weight": trained(base, 2)["lm_head.weight"]}
    three = trained(two, 3)
    steps = [base, one, two, three]
    for number, (old, new) in enumerate(pairwise(steps), start=1):
        write_delta(weights, number, old, new)
    again = write_delta(weights, 1, base, base | {FROZEN: trained(base, 4)[FROZEN]})
    later = (weights / "weight_v000003" / INDEX).stat().st_mtime + 60
    os.utime(again / INDEX, (later, later))
    if is_held:
        # Then the second's delta would be applied to the worker's copy.
        assert taken("weight_v000001")[FROZEN] == trained(base, 4)[FROZEN]

    with pytest.raises(SidecarError, match="weight_v000002 is older than weight_v000001") as caught:
        taken("weight_v000002")
    assert caught.value.code is Code.CHECKPOINT_INVALID

    os.utime(write_delta(weights, 1, base, one) / INDEX, (0, 0))
    os.utime(weights / "weight_v000003" / INDEX, (0, 0))
    # As after a copy in any order: their checksums show that the third follows the second.
    assert taken("weight_v000003") == three
