"""Good and bad checkpoints, from the disk as trainers leave it."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlfleet_contract.worker.commands import PrepareRequest
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.cache.store import VersionStore
from rlfleet_sidecar.checkpoints.check import Checkpoint, Checkpoints
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.staging.prepare_job import PrepareJob
from tests.fakes.checkpoints import (
    CONFIG,
    CORRUPTIONS,
    MARKER,
    SHAPES,
    header_of,
    spoil,
    write_file,
    write_model,
    write_version,
)
from tests.fakes.memory import digest_of

VERSION = "step-1"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "weights"
    root.mkdir()
    return root


class Subject(VersionStore):
    """Prepares a version and returns what is held of it."""

    def check(self, version: str, digest: str | None = None) -> Checkpoint:
        request = PrepareRequest(operation="o", version=version, digest=digest)
        self.prepare(PrepareJob(version, 30), request, frozenset)
        return self.demand(version)


def checkpoints(model: Path, root: Path, **settings: Any) -> Subject:
    made = SidecarSettings.model_validate(
        {"model_name": "m", "model_path": model, "weights_path": f"{root}/{{version}}"} | settings
    )
    return Subject(made, Checkpoints(made))


def refusal(subject: Subject, version: str = VERSION) -> SidecarError:
    with pytest.raises(SidecarError) as caught:
        subject.check(version)
    return caught.value


@pytest.mark.parametrize("shards", [1, 3])
def test_a_complete_version_passes(model: Path, root: Path, shards: int) -> None:
    directory = write_version(root, VERSION, 1, shards=shards)

    checked = checkpoints(model, root).check(VERSION)

    assert checked.directory == directory
    assert len(checked.files) == shards
    assert checked.tensors == len(SHAPES)
    assert checked.digest == digest_of(directory)
    assert checked.nbytes == sum(2 * shape[0] * (shape[1:] or (1,))[0] for shape in SHAPES.values())


@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_a_spoilt_version_is_refused(model: Path, root: Path, corruption: str) -> None:
    spoil(write_version(root, VERSION, 1), corruption)

    error = refusal(checkpoints(model, root))

    assert error.code == CORRUPTIONS[corruption][0]
    assert str(root / VERSION) in error.message


@pytest.mark.parametrize(
    "state",
    [
        # transformers' Trainer, and TRL's.
        ["optimizer.pt", "scheduler.pt", "rng_state.pth", "scaler.pt", "training_args.bin"],
        ["rng_state_0.pth", "rng_state_11.pth", "optimizer.bin"],
        # Accelerate.
        ["optimizer_1.bin", "scheduler.bin", "sampler.bin", "random_states_0.pkl"],
        ["dl_state_dict.bin", "dl_state_dict_1.bin", "custom_checkpoint_0.pkl"],
        # FSDP with FULL_STATE_DICT: the same weights once more, for the trainer itself.
        ["pytorch_model_fsdp.bin", "pytorch_model_fsdp_1.bin", "optimizer.bin"],
        # DeepSpeed.
        ["zero_to_fp32.py", "zero_to_torch.py"],
        # transformers' Trainer with SageMaker's model parallelism.
        ["user_content.pt"],
        # The voices of Qwen2.5-Omni, which trainers copy from the base model.
        ["spk_dict.pt"],
    ],
)
def test_a_trainers_own_state_may_lie_in_a_version(
    model: Path, root: Path, state: list[str]
) -> None:
    directory = write_version(root, "step-1", 1)
    for name in state:
        (directory / name).touch()

    assert {file.name for file in checkpoints(model, root).check("step-1").files} == {
        file.name for file in directory.glob("*.safetensors")
    }


def test_files_of_single_ranks_are_refused_with_the_way_out(model: Path, root: Path) -> None:
    """As torch's HuggingFaceStorageWriter and NeMo AutoModel write them, each with its rows."""
    directory = write_version(root, VERSION, 1)
    (directory / "model.safetensors").unlink()
    halves = {name: (shape[0] // 2, *shape[1:]) for name, shape in SHAPES.items()}
    for rank in (1, 2):
        write_file(directory / f"shard-0000{rank}-model-00001-of-00001.safetensors", halves, 1)

    assert "consolidate files of single ranks" in refusal(checkpoints(model, root)).message


def test_the_modules_of_a_base_model_with_code_may_lie_in_a_version(
    model: Path, root: Path
) -> None:
    # save_pretrained copies them.
    config = json.loads((model / "config.json").read_text())
    coded = json.dumps(config | {"auto_map": {"AutoModelForCausalLM": "modeling_x.X"}})
    (model / "config.json").write_text(coded)
    directory = write_version(root, VERSION, 1)
    (directory / "config.json").write_text(coded)
    (directory / "modeling_x.py").touch()

    assert checkpoints(model, root).check(VERSION).tensors == len(SHAPES)
    (directory / "modeling_x.pkl").touch()
    assert "can contain code" in refusal(checkpoints(model, root)).message


@pytest.mark.parametrize("name", ["optimizer.pkl", "my_optimizer.pt", "optimizer.pt.py"])
def test_what_only_resembles_a_trainers_state_is_rejected(
    model: Path, root: Path, name: str
) -> None:
    (write_version(root, "step-1", 1) / name).touch()

    assert "can contain code" in refusal(checkpoints(model, root), "step-1").message


def test_weights_next_to_an_adapter_that_they_lack_are_rejected(model: Path, root: Path) -> None:
    (write_version(root, "step-1", 1) / "lora_adapter").mkdir()

    assert "merge it into them" in refusal(checkpoints(model, root), "step-1").message


def test_base_is_the_model_path_and_needs_no_marker(model: Path, root: Path) -> None:
    checked = checkpoints(model, root).check("base")

    assert (checked.directory, checked.tensors) == (model, len(SHAPES))


def test_base_may_be_a_hub_cache_of_links_with_other_formats_too(
    model: Path, root: Path, tmp_path: Path
) -> None:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for file in model.iterdir():
        (snapshot / file.name).symlink_to(file)
    (snapshot / "pytorch_model.bin").touch()

    assert checkpoints(snapshot, root).check("base").tensors == len(SHAPES)


def test_a_missing_version_is_rejected_with_existing_ones(model: Path, root: Path) -> None:
    subject = checkpoints(model, root)
    assert "contains no version" in refusal(subject).message
    for step in range(7):
        write_version(root, f"step-{step + 2}", step)

    error = refusal(subject)

    assert error.code is Code.VERSION_NOT_FOUND
    assert "step-4, step-5, step-6, step-7, step-8" in error.message


def test_a_missing_version_is_named_so_among_any_number(model: Path, root: Path) -> None:
    for number in range(10_001):
        (root / f"step-{number + 2}").mkdir()

    refused = refusal(checkpoints(model, root))

    assert refused.code is Code.VERSION_NOT_FOUND
    assert "some versions are step-" in refused.message


def test_a_root_that_is_not_mounted_is_rejected(model: Path, tmp_path: Path) -> None:
    error = refusal(checkpoints(model, tmp_path / "nowhere"))

    assert error.code is Code.VERSION_NOT_FOUND
    assert "mounted" in error.message


def test_a_version_that_is_a_link_is_refused_and_a_root_that_is_one_is_not(
    model: Path, root: Path, tmp_path: Path
) -> None:
    write_version(tmp_path / "elsewhere", VERSION, 1)
    (root / VERSION).symlink_to(tmp_path / "elsewhere" / VERSION)
    (tmp_path / "mount").symlink_to(tmp_path / "elsewhere")

    assert refusal(checkpoints(model, root)).code is Code.PATH_REFUSED
    assert checkpoints(model, tmp_path / "mount").check(VERSION).tensors == len(SHAPES)


@pytest.mark.parametrize("kind", ["file", "fifo"])
def test_what_is_no_directory_or_no_file_is_refused(model: Path, root: Path, kind: str) -> None:
    if kind == "file":
        (root / VERSION).touch()
    else:
        directory = write_version(root, VERSION, 1)
        (directory / "model.safetensors").unlink()
        os.mkfifo(directory / "model.safetensors")

    assert refusal(checkpoints(model, root)).code in {Code.CHECKPOINT_INVALID, Code.PATH_REFUSED}


def test_prime_rl_s_marks_count_by_their_age(model: Path, root: Path) -> None:
    directory = write_version(root, VERSION, 1)
    (directory / MARKER).unlink()
    subject = checkpoints(model, root)
    (directory / ".sender_ready").touch()
    assert refusal(subject).code is Code.CHECKPOINT_INCOMPLETE
    (directory / ".finished").touch()
    assert subject.check(VERSION).tensors == len(SHAPES)

    later = (directory / ".finished").stat().st_mtime + 10
    os.utime(directory / ".sender_ready", (later, later))

    error = refusal(subject)
    assert error.code is Code.CHECKPOINT_INCOMPLETE
    assert "written again" in error.message


def test_markers_are_those_that_the_pod_names(model: Path, root: Path) -> None:
    directory = write_version(root, VERSION, 1)
    (directory / MARKER).rename(directory / "DONE")

    assert refusal(checkpoints(model, root)).code is Code.CHECKPOINT_INCOMPLETE
    assert checkpoints(model, root, markers="DONE").check(VERSION)
    assert checkpoints(model, root, markers="").check(VERSION)


def test_the_marker_may_stand_above_the_weights(model: Path, root: Path) -> None:
    directory = write_version(root / VERSION, "weight", 1)
    (directory / MARKER).rename(root / VERSION / MARKER)

    subject = checkpoints(model, root, weights_path=f"{root}/{{version}}/weight")

    assert subject.check(VERSION).directory == directory


def test_files_that_the_engine_s_user_cannot_read_are_rejected_with_the_cure(
    model: Path, root: Path
) -> None:
    file = write_version(root, VERSION, 1) / "model.safetensors"
    file.chmod(0o600)

    error = refusal(checkpoints(model, root, engine_uid=65532))

    assert error.code is Code.CHECKPOINT_UNREADABLE
    assert error.message == (
        f"{file} (uid {os.getuid()}, mode 0600) is not readable by uid 65532 of the engine; run"
        " chmod a+r before the marker, or run workers and trainer as one user"
        " (spec.template.spec.securityContext)"
    )


def test_a_tied_head_may_be_absent(model: Path, root: Path) -> None:
    shapes = {name: shape for name, shape in SHAPES.items() if name != "lm_head.weight"}
    write_file(write_version(root, VERSION, 1) / "model.safetensors", shapes, 1)
    assert "lm_head.weight" in refusal(checkpoints(model, root)).message

    (model / "config.json").write_text(json.dumps(CONFIG | {"tie_word_embeddings": True}))

    assert checkpoints(model, root).check(VERSION).tensors == len(shapes)


TIED = CONFIG | {"tie_word_embeddings": True}
HEADLESS = {name: shape for name, shape in SHAPES.items() if name != "lm_head.weight"}


def tied(model: Path, shapes: Mapping[str, Sequence[int]]) -> Path:
    """Make of a model one whose embeddings are its head."""
    (model / "config.json").write_text(json.dumps(TIED))
    write_file(model / "model.safetensors", shapes, 0)
    return model


@pytest.mark.parametrize("boot", [SHAPES, HEADLESS], ids=["boot has it", "boot has none"])
@pytest.mark.parametrize("version", [SHAPES, HEADLESS], ids=["version has it", "version has none"])
def test_a_tied_head_may_be_listed_or_not_on_either_side(
    model: Path, root: Path, boot: Mapping[str, Sequence[int]], version: Mapping[str, Sequence[int]]
) -> None:
    """A trainer's state_dict lists both names, and the Hub's file only one."""
    directory = write_version(root, VERSION, 1)
    write_file(directory / "model.safetensors", version, 1)

    held = checkpoints(tied(model, boot), root).check(VERSION)

    assert held.tensors == len(version)
    assert held.digest == digest_of(directory)


def test_a_state_space_model_s_head_is_known_by_its_embeddings(model: Path, root: Path) -> None:
    """Mamba's state_dict lists the head that is its backbone's embeddings."""
    names = {name: name.replace("model.embed_tokens", "backbone.embeddings") for name in SHAPES}
    ours = {names[name]: shape for name, shape in SHAPES.items()}
    write_file(write_version(root, VERSION, 1) / "model.safetensors", ours, 1)
    boot = {name: shape for name, shape in ours.items() if name != "lm_head.weight"}

    assert checkpoints(tied(model, boot), root).check(VERSION).tensors == len(ours)


def test_a_listed_head_has_the_shape_of_the_embeddings_that_it_is_tied_to(
    model: Path, root: Path
) -> None:
    shapes = SHAPES | {"lm_head.weight": (8, 512)}
    write_file(write_version(root, VERSION, 1) / "model.safetensors", shapes, 1)

    error = refusal(checkpoints(tied(model, HEADLESS), root))

    assert error.code is Code.CHECKPOINT_INVALID
    assert "lm_head.weight has shape [8, 512], expected [512, 8]" in error.message


def test_the_part_of_one_rank_is_no_resized_vocabulary(model: Path, root: Path) -> None:
    # What verl's merger writes of two ranks' tensors that are no DTensors.
    shapes = {name: (shape[0] // 2, *shape[1:]) for name, shape in SHAPES.items()}
    write_file(write_version(root, VERSION, 1) / "model.safetensors", shapes, 1)

    message = refusal(checkpoints(model, root)).message

    assert message.endswith(
        "; gather the parameters of all ranks before you save them,"
        " or serve a base model of this size"
    )


@pytest.mark.parametrize(
    ("rows", "kind", "way_out"),
    [
        (640, "larger", "leave out the rows that pad the vocabulary"),
        (500, "smaller", "do not resize the embeddings to the tokenizer"),
    ],
)
def test_embeddings_of_another_vocabulary_are_refused_with_the_way_out(
    model: Path, root: Path, rows: int, kind: str, way_out: str
) -> None:
    # Megatron's exports pad them, resize_token_embeddings adds tokens.
    shapes = {name: (rows, 8) if shape == (512, 8) else shape for name, shape in SHAPES.items()}
    write_file(write_version(root, VERSION, 1) / "model.safetensors", shapes, 1)

    message = refusal(checkpoints(model, root)).message

    assert f"has shape [{rows}, 8], expected [512, 8], a {kind} vocabulary" in message
    assert way_out in message
    assert message.endswith("a base model with the version's vocabulary and tokenizer")


def test_a_head_is_unknown_to_a_model_that_ties_none(model: Path, root: Path) -> None:
    write_version(root, VERSION, 1)
    write_file(model / "model.safetensors", HEADLESS, 0)

    assert "unknown tensors: lm_head.weight" in refusal(checkpoints(model, root)).message


@pytest.mark.parametrize(("cache", "shards"), [(False, 1), (False, 3), (True, 3)])
def test_a_file_whose_bytes_were_never_written_is_refused(
    model: Path, root: Path, tmp_path: Path, shards: int, *, cache: bool
) -> None:
    """A node that fails soon after the save leaves size, header and marker, and a hole."""
    file = min(write_version(root, VERSION, 1, shards=shards).glob("*.safetensors"))
    size, begin = file.stat().st_size, 8 + int.from_bytes(file.read_bytes()[:8], "little")
    os.truncate(file, begin)
    os.truncate(file, size)
    settings = {"cache_dir": tmp_path / "cache", "cache_spare": 0} if cache else {}

    error = refusal(checkpoints(model, root, **settings))

    assert error.code is Code.CHECKPOINT_INVALID
    assert error.message == (
        f"{file} holds only zeros: its tensors were never written; write it again"
    )


def test_matrices_and_vectors_of_zeros_may_lie_among_others(model: Path, root: Path) -> None:
    # A trainer may begin with such a head, or with layers that change nothing.
    file = write_version(root, VERSION, 1) / "model.safetensors"
    data = bytearray(file.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    data[begin : begin + 2 * 512 * 8] = bytes(2 * 512 * 8)
    file.write_bytes(data)

    assert checkpoints(model, root).check(VERSION).tensors == len(SHAPES)


def test_floating_types_that_vllm_casts_may_differ(model: Path, root: Path) -> None:
    file = write_version(root, VERSION, 1) / "model.safetensors"
    write_file(file, SHAPES, 1, header_of(SHAPES, "F16"))

    assert checkpoints(model, root).check(VERSION).tensors == len(SHAPES)


def test_an_equal_config_may_lie_in_a_version(model: Path, root: Path) -> None:
    directory = write_version(root, VERSION, 1)
    (directory / "config.json").write_text(json.dumps(CONFIG | {"transformers_version": "9"}))

    assert checkpoints(model, root).check(VERSION).tensors == len(SHAPES)


def test_a_config_that_transformers_wrote_again_may_lie_in_a_version(
    model: Path, root: Path
) -> None:
    """It writes null for a window that is not used, where the Hub's file has a number."""
    directory = write_version(root, VERSION, 1)
    unused = CONFIG | {"use_sliding_window": False}
    (model / "config.json").write_text(json.dumps(unused | {"sliding_window": 4096}))
    (directory / "config.json").write_text(json.dumps(unused | {"sliding_window": None}))

    assert checkpoints(model, root).check(VERSION).tensors == len(SHAPES)


def test_a_nested_config_that_differs_is_rejected_by_its_key(model: Path, root: Path) -> None:
    directory = write_version(root, VERSION, 1)
    for where, layers in ((model, 2), (directory, 3)):
        nested = {"text_config": {"hidden_size": 8, "num_hidden_layers": layers}}
        (where / "config.json").write_text(json.dumps(CONFIG | nested))

    assert refusal(checkpoints(model, root)).message == (
        f"{directory}/config.json does not match the base model:"
        " text_config.num_hidden_layers is 3, expected 2; the engine computes with the base"
        " model's: train with it, correct this file if you did, or serve a base model that has the"
        " version's"
    )


def test_a_version_that_is_written_again_after_its_check_is_noticed(
    model: Path, root: Path
) -> None:
    subject = checkpoints(model, root)
    write_version(root, VERSION, 1)
    subject.check(VERSION)
    subject.demand(VERSION)

    write_version(root, VERSION, 2)

    with pytest.raises(SidecarError, match="written again"):
        subject.demand(VERSION)


def test_a_check_that_takes_too_long_ends(model: Path, root: Path) -> None:
    write_version(root, VERSION, 1)

    error = refusal(checkpoints(model, root, check_s=1e-9))

    assert error.code is Code.CHECKPOINT_UNREADABLE


def test_a_base_model_of_links_is_read_once(model: Path, root: Path, tmp_path: Path) -> None:
    (tmp_path / "snapshot").mkdir()
    for path in model.iterdir():
        (tmp_path / "snapshot" / path.name).symlink_to(path)
    subject = checkpoints(tmp_path / "snapshot", root)
    request = PrepareRequest(operation="o", version="base")

    read = [subject.prepare(PrepareJob("base", 30), request, frozenset) for _ in range(2)]

    assert read == [True, False]


def test_an_error_of_names_or_sizes_alone_has_a_way_out(model: Path, root: Path) -> None:
    directory = write_version(root, VERSION, 1)
    file = directory / "model.safetensors"
    # As safetensors' save_model leaves a tied model: one of two names.
    write_file(file, {n: s for n, s in SHAPES.items() if n != "model.embed_tokens.weight"}, 1)
    assert "write the version with the tensor names" in refusal(checkpoints(model, root)).message

    write_file(file, {**SHAPES, "lm_head.weight": (0,)}, 1)
    assert "[512, 8], empty: gather" in refusal(checkpoints(model, root)).message
