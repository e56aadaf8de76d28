"""Write the deltas that our tests read, with their publishers' own code.

    python -m dev.delta_fixtures SLIME MILES SKYRL STITCH FOLDER

The first four are clones of github.com/THUDM/slime, radixark/miles, NovaSky-AI/SkyRL and
modal-projects/stitch that hold the commits below; FOLDER is
tests/unit/rlfleet_sidecar/deltas/publishers. Nothing of their code stays: it is read out of the
clones, and run beside stand-ins for Ray, Megatron and the rollout engines. torch (its CPU build),
safetensors, numpy, zstandard, xxhash and blake3 must be there. Commits and files are in
PUBLISHERS.
"""

import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from shutil import copytree, rmtree
from types import ModuleType
from typing import Any

from tests.fakes.checkpoints import SHAPES, write_model
from tests.fakes.deltas.tensors import Tensors, tensors_of, trained

_UPDATE = "slime/backends/megatron_utils/update_weight"
_MILES = "miles/backends/megatron_utils/update_weight"
_SYNC = "skyrl/backends/skyrl_train/weight_sync"
PUBLISHERS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "slime": (
        "624b824a898ab0ec1fcb4d373004c7f3852bf515",
        "",
        ("slime/utils/disk_delta.py", f"{_UPDATE}/update_weight_from_disk_delta.py"),
    ),
    "miles": (
        "31f1ca961a94cb860cec3b2dea34ec332bfa8f76",
        "",
        ("miles/utils/disk_delta.py", f"{_MILES}/update_weight_from_distributed/delta.py"),
    ),
    "skyrl": (
        "a9564572eb8e91076be43c1bd5e4615e3de17265",
        "",
        tuple(f"{_SYNC}/{name}.py" for name in ("base", "delta_payload", "delta_checkpoint")),
    ),
    "stitch": (
        "a250dc305f691b6865aff652ac38c683bc82c487",
        "src/",
        (
            "stitch/types.py",
            "stitch/publish.py",
            "stitch/pools/base.py",
            "stitch/stores/base.py",
            "stitch/stores/modal_volume.py",
        ),
    ),
}
"""Commit, folder of the sources in the clone, files."""
RANKS = 2
STEPS = 3
"""Versions of each chain; in the second one nothing changes."""
TIED = "model.tied_head.weight"
REPLICATED = "model.embed_tokens.weight"
"""Both ranks have it, as Megatron's first and last pipeline stage; miles publishes it once."""
ENCODINGS = (("xor", "xxh3-128"), ("overwrite", "blake3"), ("xor", "adler32"))


def main() -> None:
    """Write all fixtures into a folder, which is emptied before."""
    *paths, folder = map(Path, sys.argv[1:])
    clones = dict(zip(PUBLISHERS, paths, strict=True))
    with tempfile.TemporaryDirectory() as scratch:
        code = Path(scratch, "code")
        for name, clone in clones.items():
            _read_out(clone, name, code)
        sys.path.insert(0, str(code))
        model = write_model(Path(scratch, "model"), seed=0)
        for old in folder.glob("*/"):
            rmtree(old)
        for name, rank in (("slime", _slime_rank), ("miles", _miles_rank)):
            for encoding, checksum in ENCODINGS:
                target = folder / f"{name}-{encoding}-{checksum}"
                meeting = Path(scratch, f"meeting-{target.name}")
                _by_ranks(rank, _arguments(model, target, encoding, checksum), meeting)
        _skyrl(model, folder / "skyrl", Path(scratch, "staging"))
        _stitch(folder / "slime-xor-xxh3-128", folder / "stitch")
    print(f"{sum(path.stat().st_size for path in folder.rglob('*.*'))} bytes in {folder}")


def states(model: Path) -> list[Tensors]:
    """Return the tensors of the base model and of each version."""
    found = [tensors_of(model)]
    for number in range(1, STEPS + 1):
        found.append(found[-1] if number == 2 else trained(found[-1], number))  # noqa: PLR2004
    return found


def _read_out(clone: Path, name: str, code: Path) -> None:
    commit, prefix, paths = PUBLISHERS[name]
    for path in paths:
        argv = ["git", "-C", str(clone), "show", f"{commit}:{prefix}{path}"]
        text = subprocess.run(argv, check=True, capture_output=True).stdout
        target = code / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text)
        # Their own packages import what needs a GPU or a cluster.
        for folder in [*target.parents][: len(Path(path).parents) - 1]:
            (folder / "__init__.py").touch()


def _arguments(model: Path, target: Path, encoding: str, checksum: str) -> Namespace:
    """Return the flags that both publishers read."""
    return Namespace(
        update_weight_disk_dir=str(target),
        update_weight_delta_encoding=encoding,
        update_weight_delta_checksum=checksum,
        custom_update_weight_post_write_path=None,
        hf_checkpoint=str(model),
        check_weight_update_equal=False,
    )


def _by_ranks(made: Callable[[int, Namespace], Any], args: Namespace, meeting: Path) -> None:
    """Publish by two ranks, each with the publisher that it makes."""
    context = get_context("fork")
    ranks = [
        context.Process(target=_publish, args=(made, rank, args, meeting)) for rank in range(RANKS)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
        if process.exitcode:
            raise SystemExit(f"the publisher failed for {args.update_weight_disk_dir}")


def _publish(
    made: Callable[[int, Namespace], Any], rank: int, args: Namespace, meeting: Path
) -> None:
    torch = import_module("torch")
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS
    )
    publisher = made(rank, args)
    publisher.rollout_engines = []
    for tensors in states(Path(args.hf_checkpoint)):
        publisher.tensors = tensors
        publisher.update_weights()
    torch.distributed.destroy_process_group()


def _named(tensors: Mapping[str, bytes], names: Sequence[str]) -> list[tuple[str, Any]]:
    return [(name, _tensor(name, tensors[name])) for name in names]


def _slime_rank(rank: int, args: Namespace) -> Any:
    """Return slime's publisher."""
    torch = import_module("torch")
    _stand_in_for_slime()
    module = import_module(f"{_UPDATE.replace('/', '.')}.update_weight_from_disk_delta")

    class Publisher(module.UpdateWeightFromDiskDelta):  # type: ignore[name-defined, misc]
        """slime's, with tensors of ours and no engine."""

        _is_pp_src_rank = True
        tensors: Mapping[str, bytes]

        def _iter_hf_tensors(self) -> Iterator[tuple[str, Any]]:
            yield from _named(self.tensors, sorted(self.tensors)[rank::RANKS])

        def _reload_engines(self) -> None:
            torch.distributed.barrier()

    return Publisher(args, (), dict, model_name="", quantization_config=None)


def _stand_in_for_ray() -> None:
    _stand_in("ray", get=lambda found: found)
    _stand_in("ray.actor", ActorHandle=object)


def _stand_in_for_slime() -> None:
    class Updater:
        """The class that slime's extends."""

        def __init__(self, args: Namespace, *_: object, **__: object) -> None:
            self.args = args
            self.weight_version = 0
            self.update_weight_metrics: dict[str, float] = {}

    _stand_in_for_ray()
    _stand_in("megatron")
    _stand_in("megatron.core", mpu=None)
    utils = import_module("slime.utils")
    utils.accelerator = _stand_in("slime.utils.accelerator", current_device=lambda: "cpu")  # type: ignore[attr-defined]
    _stand_in("slime.utils.distributed_utils", get_gloo_group=lambda: None)
    name = f"{_UPDATE.replace('/', '.')}.update_weight_from_distributed"
    _stand_in(name, UpdateWeightFromDistributed=Updater)


def _miles_rank(rank: int, args: Namespace) -> Any:
    """Return miles' publisher."""
    torch = import_module("torch")
    _stand_in_for_miles()
    module = import_module(f"{_MILES.replace('/', '.')}.update_weight_from_distributed.delta")

    class Publisher(module.UpdateWeightFromDiskDelta):  # type: ignore[name-defined, misc]
        """miles', with tensors of ours and no engine."""

        _is_source = True
        _group_name = "fixtures"
        tensors: Mapping[str, bytes]

        def _gather_and_update_non_expert_weights(
            self, take: Callable[[list[tuple[str, Any]], object], None], bar: object
        ) -> None:
            names = sorted({*sorted(self.tensors)[rank::RANKS], REPLICATED})
            take(_named(self.tensors, names), bar)

        def _gather_and_update_expert_weights(self, *_: object) -> None:
            return

        def _reload_engines(self) -> None:
            torch.distributed.barrier()

        def _record_metrics(self) -> None:
            return

    return Publisher(args, (), dict, model_name="", quantization_config=None)


def _stand_in_for_miles() -> None:
    class Mixin:
        """The class that miles' extends."""

        def _init_lora(self, **_: object) -> None:
            return

    _stand_in_for_ray()
    _stand_in("tqdm", tqdm=lambda **_: None)
    _stand_in("miles.backends.training_utils")
    _stand_in("miles.backends.training_utils.parallel", get_parallel_state=None)
    _stand_in("miles.utils.distributed_utils", get_gloo_group=lambda: None)
    update = _MILES.replace("/", ".")
    _stand_in(f"{update}.common", _check_weight_sync_results=lambda *_, **__: None)
    _stand_in(f"{update}.update_weight_from_distributed.mixin", DistBucketedWeightUpdateMixin=Mixin)


def _skyrl(model: Path, target: Path, staging: Path) -> None:
    """Publish with SkyRL's class, and with a tied head that the base model lacks."""
    sync = _SYNC.replace("/", ".")
    chunk = import_module(f"{sync}.base").WeightChunk
    publisher = import_module(f"{sync}.delta_checkpoint").DeltaCheckpointPublisher(
        str(model), str(target), str(staging)
    )
    for found in states(model)[1:]:
        tensors = {name: _tensor(name, data) for name, data in found.items()}
        tensors[TIED] = tensors["lm_head.weight"].clone()
        made = publisher.create_delta_files(
            [
                chunk(
                    names=list(tensors),
                    dtypes=[str(one.dtype) for one in tensors.values()],
                    shapes=[list(one.shape) for one in tensors.values()],
                    tensors=list(tensors.values()),
                )
            ]
        )
        publisher.publish(made)


def _stitch(published: Path, target: Path) -> None:
    """Put slime's deltas into Stitch's store."""
    publish = import_module("stitch.publish")
    store = import_module("stitch.stores.modal_volume").ModalVolumeStore(target, run_id="run-1")
    publish.claim_run(store, None, "run-1")
    for version in sorted(published.iterdir()):
        copied = target / "updates" / version.name
        copytree(version, copied)
        publish.publish_version(store, None, str(copied), run_id="run-1")


def _tensor(name: str, data: bytes) -> Any:
    torch = import_module("torch")
    shape = SHAPES[name]
    return torch.frombuffer(bytearray(data), dtype=torch.bfloat16).view(*shape)


def _stand_in(name: str, **attributes: object) -> ModuleType:
    module = ModuleType(name)
    for key, value in attributes.items():
        setattr(module, key, value)
    sys.modules[name] = module
    return module


if __name__ == "__main__":
    main()
