"""Which copies of an adapter stay: what is served, and what was used last."""

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

from rlfleet_contract.worker.fence import Fence
from rlfleet_contract.worker.lora import LoadAdapterRequest
from rlfleet_sidecar.checkpoints.check import Checkpoints
from rlfleet_sidecar.checkpoints.headers import Headers
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.lora.cache import LoRACache
from rlfleet_sidecar.lora.compatibility import CONFIG
from rlfleet_sidecar.lora.completeness import TENSORS
from rlfleet_sidecar.lora.registry import LoRACopy
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.staging.prepare_job import PrepareJob
from rlfleet_sidecar.timeouts import Glance
from tests.fakes.adapters import write_adapter
from tests.fakes.checkpoints import MARKER, write_model

KEPT = 8


@pytest.fixture
def settings(tmp_path: Path) -> SidecarSettings:
    for step in range(1, KEPT + 4):
        write_adapter(tmp_path / "weights" / "adapters" / f"v{step}", seed=step)
    return SidecarSettings(
        model_name="fake",
        model_path=write_model(tmp_path / "model", seed=0),
        weights_path=f"{tmp_path}/weights/{{version}}",
        cache_dir=tmp_path / "cache",
    )


class Model(Checkpoints):
    """The base model, with which each adapter is compared before there is room for its copy."""

    def __init__(self, settings: SidecarSettings) -> None:
        super().__init__(settings)
        self.look: Callable[[], object] = lambda: None

    def boot_model(self, deadline: float | None = None) -> Headers:
        self.look()
        return super().boot_model(deadline)


@pytest.fixture
def model(settings: SidecarSettings) -> Model:
    return Model(settings)


@pytest.fixture
def copies(settings: SidecarSettings, model: Model) -> LoRACache:
    return LoRACache(settings, model)


def taken(copies: LoRACache, root: Path, step: int, *served: LoRACopy) -> LoRACopy:
    request = LoadAdapterRequest(
        operation="o",
        name="a",
        version=f"v{step}",
        path=str(root / "weights" / "adapters" / f"v{step}"),
    )
    directories = frozenset(copy.directory for copy in served)
    work = PrepareJob(request.version, 30)
    copy = copies.take(request, work, lambda _drafted: 1 << 40, lambda: directories)
    # Timestamps of file systems may be coarse.
    moment = copies.nbytes() + step
    os.utime(copy.directory / ".used", (moment, moment))
    return copy


def test_a_copy_that_is_served_stays_however_old_it_is(copies: LoRACache, tmp_path: Path) -> None:
    first = taken(copies, tmp_path, 1)
    second = taken(copies, tmp_path, 2, first)
    for step in range(3, KEPT + 3):
        taken(copies, tmp_path, step, first)

    assert first.directory.exists()
    assert not second.directory.exists()


def test_a_copy_that_is_used_again_is_the_newest(copies: LoRACache, tmp_path: Path) -> None:
    made = [taken(copies, tmp_path, step) for step in range(1, KEPT + 1)]
    assert taken(copies, tmp_path, 1) == made[0]

    taken(copies, tmp_path, KEPT + 1)

    assert made[0].directory.exists()
    assert not made[1].directory.exists()


def test_a_copy_that_was_used_again_is_the_newest_after_a_restart_too(
    copies: LoRACache, settings: SidecarSettings, tmp_path: Path
) -> None:
    made = [taken(copies, tmp_path, step) for step in range(1, KEPT + 1)]
    for age, copy in enumerate(made):
        os.utime(copy.directory / ".used", (age, age))
    copies.take(
        LoadAdapterRequest(operation="o", name="a", version="v1", path=str(made[0].source)),
        PrepareJob("v1", 30),
        lambda _drafted: 1 << 40,
    )

    again = LoRACache(settings, Checkpoints(settings))
    taken(again, tmp_path, KEPT + 1)

    assert made[0].directory.exists()
    assert not made[1].directory.exists()


def test_a_stray_file_in_the_cache_goes_and_nothing_behind_a_link(
    copies: LoRACache, settings: SidecarSettings, tmp_path: Path
) -> None:
    kept = taken(copies, tmp_path, 1)
    directory = kept.directory.parent
    (directory / "stray").write_text("x")
    (directory / "link").symlink_to(tmp_path)

    again = LoRACache(settings, Checkpoints(settings))

    assert [path.name for path in directory.iterdir()] == [kept.directory.name]
    assert taken(again, tmp_path, 1) == kept
    assert (tmp_path / "weights").exists()


def test_a_copy_for_which_there_is_no_room_drops_none(copies: LoRACache, tmp_path: Path) -> None:
    made = [taken(copies, tmp_path, step) for step in range(1, KEPT + 1)]
    step = KEPT + 1
    path = str(tmp_path / "weights" / "adapters" / f"v{step}")
    request = LoadAdapterRequest(operation="o", name="a", version=f"v{step}", path=path)

    with pytest.raises(SidecarError, match="-1000000000 free"):
        copies.take(request, PrepareJob(request.version, 30), lambda _drafted: -1_000_000_000)

    assert all(copy.directory.exists() for copy in made)


@pytest.fixture
def full(copies: LoRACache, tmp_path: Path) -> list[LoRACopy]:
    """As many copies of one name as are kept."""
    return [taken(copies, tmp_path, step) for step in range(1, KEPT + 1)]


def the_next(root: Path) -> LoadAdapterRequest:
    version = f"v{KEPT + 1}"
    path = str(root / "weights" / "adapters" / version)
    return LoadAdapterRequest(operation="o", name="a", version=version, path=path)


def test_what_is_served_since_the_check_stays(
    copies: LoRACache, model: Model, full: list[LoRACopy], tmp_path: Path
) -> None:
    served: set[Path] = set()
    model.look = lambda: served.add(full[0].directory)

    work = PrepareJob("v", 30)
    copies.take(the_next(tmp_path), work, lambda _drafted: 1 << 40, lambda: frozenset(served))

    assert full[0].directory.exists()


def test_a_copy_that_is_superseded_during_its_check_drops_none(
    copies: LoRACache, model: Model, full: list[LoRACopy], tmp_path: Path
) -> None:
    work = PrepareJob("v", 30)
    model.look = lambda: work.supersede("another one")

    with pytest.raises(SidecarError, match="another one"):
        copies.take(the_next(tmp_path), work, lambda _drafted: 1 << 40)

    assert all(copy.directory.exists() for copy in full)


def test_copies_of_names_that_are_no_longer_loaded_do_not_pile_up(
    copies: LoRACache, tmp_path: Path
) -> None:
    served: list[LoRACopy] = []
    # A name for each step, as TRL has it; the first stays loaded, with the last three.
    for step in range(1, 3 * KEPT):
        write_adapter(tmp_path / "weights" / "adapters" / f"n{step}", seed=step)
        path = str(tmp_path / "weights" / "adapters" / f"n{step}")
        request = LoadAdapterRequest(operation="o", name=f"n{step}", version="v", path=path)
        in_use = frozenset(copy.directory for copy in (*served[:1], *served[-3:]))
        served.append(
            copies.take(
                request, PrepareJob("v", 30), lambda _drafted: 1 << 40, partial(frozenset, in_use)
            )
        )

    left = [copy for copy in served if copy.directory.exists()]
    assert left[0] is served[0]
    assert left[1:] == served[-len(left) + 1 :]
    assert len(left) <= 1 + 3 + KEPT


def test_names_that_were_unloaded_take_no_place_of_a_name_s_own(
    copies: LoRACache, tmp_path: Path
) -> None:
    own = [taken(copies, tmp_path, step) for step in range(1, KEPT + 1)]
    for step in range(1, KEPT + 1):
        path = str(tmp_path / "weights" / "adapters" / f"v{step}")
        request = LoadAdapterRequest(operation="o", name=f"eval-{step}", version="v", path=path)
        in_use = frozenset({own[-1].directory})
        copies.take(
            request, PrepareJob("v", 30), lambda _drafted: 1 << 40, partial(frozenset, in_use)
        )

    taken(copies, tmp_path, KEPT + 1, own[-1])

    assert [copy.directory.exists() for copy in own] == [False] + [True] * (KEPT - 1)


@pytest.fixture
def hanging() -> Iterator[Glance]:
    """Looks at a volume of which one has not ended."""
    answered = threading.Event()
    glance = Glance(patience_s=0.01)
    assert glance.sees(answered.wait) is False
    yield glance
    answered.set()


FENCE = Fence(fleet="f", pod="p", epoch=1, sequence=1)


def test_a_trainer_gets_what_its_directory_holds_however_slow_the_volume_is(
    settings: SidecarSettings, hanging: Glance, tmp_path: Path
) -> None:
    copies = LoRACache(settings, Checkpoints(settings), hanging)
    first = taken(copies, tmp_path, 1)
    source = tmp_path / "weights" / "adapters" / "v1"
    shutil.rmtree(source)
    write_adapter(source, seed=77)
    called = LoadAdapterRequest(operation="o", name="a", version="v1", path=str(source))

    repeated = copies.take(
        called.model_copy(update={"fence": FENCE}), PrepareJob("v1", 30), lambda _drafted: 1 << 40
    )
    again = copies.take(called, PrepareJob("v1", 30), lambda _drafted: 1 << 40)

    assert repeated.digest == first.digest
    assert again.digest != first.digest


@pytest.mark.parametrize(
    ("helper", "is_taken"),
    [("alpha_pattern: dict[str, float]", True), ("lora_alpha: int", False), (None, False)],
)
def test_patterns_of_an_adapter_are_taken_only_if_the_installed_vllm_knows_them(
    settings: SidecarSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    helper: str | None,
    *,
    is_taken: bool,
) -> None:
    if helper is not None:
        package = tmp_path / "site" / "vllm"
        (package / "lora").mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "lora" / "peft_helper.py").write_text(helper)
        monkeypatch.syspath_prepend(tmp_path / "site")
    write_adapter(tmp_path / "weights" / "adapters" / "v1", seed=1, alpha_pattern={"q_proj": 16})
    copies = LoRACache(settings, Checkpoints(settings))

    with nullcontext() if is_taken else pytest.raises(SidecarError, match="alpha_pattern"):
        taken(copies, tmp_path, 1)


class TestFilesThatAreNoAdapter:
    """Of trainers that do not save as PEFT does."""

    @pytest.fixture
    def adapter(self, tmp_path: Path) -> Path:
        return tmp_path / "weights" / "adapters" / "v1"

    @pytest.fixture
    def why(self, copies: LoRACache, tmp_path: Path) -> Callable[[], str]:
        def refusal() -> str:
            with pytest.raises(SidecarError) as caught:
                taken(copies, tmp_path, 1)
            return caught.value.message

        return refusal

    @pytest.mark.parametrize("is_marked", [True, False])
    def test_shards_are_named_with_the_way_out(
        self, adapter: Path, why: Callable[[], str], *, is_marked: bool
    ) -> None:
        (adapter / TENSORS).rename(adapter / "adapter_model-00001-of-00002.safetensors")
        if not is_marked:
            (adapter / MARKER).unlink()

        assert "does not read adapter_model-00001-of-00002.safetensors; save the" in why()

    def test_what_can_hold_code_is_not_waited_for(
        self, adapter: Path, why: Callable[[], str]
    ) -> None:
        """As OpenRLHF saves with ZeRO 3."""
        (adapter / TENSORS).rename(adapter / "adapter_model.bin")
        (adapter / MARKER).unlink()

        assert why().endswith("can contain code; remove it, and write safetensors")

    @pytest.mark.parametrize(
        ("name", "ending"),
        [
            (CONFIG, f"/{CONFIG} does not exist or is empty; write it"),
            (TENSORS, f"/{TENSORS} does not exist; write it"),
        ],
    )
    def test_what_an_unmarked_one_lacks_is_named(
        self, adapter: Path, why: Callable[[], str], name: str, ending: str
    ) -> None:
        (adapter / MARKER).unlink()
        (adapter / name).unlink()

        assert why().endswith(ending)


@pytest.mark.parametrize("is_coded", [True, False])
def test_the_modules_of_a_base_model_with_code_may_lie_in_an_adapter(
    copies: LoRACache, settings: SidecarSettings, tmp_path: Path, *, is_coded: bool
) -> None:
    """NeMo AutoModel copies them."""
    config = settings.model_path / "config.json"
    if is_coded:
        code = {"auto_map": {"AutoModelForCausalLM": "modeling.X"}}
        config.write_text(json.dumps(json.loads(config.read_text()) | code))
    (tmp_path / "weights" / "adapters" / "v1" / "modeling.py").touch()

    with nullcontext() if is_coded else pytest.raises(SidecarError, match="can contain code"):
        taken(copies, tmp_path, 1)
