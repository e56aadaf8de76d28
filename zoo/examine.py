"""Does with one model what a worker does with a version, and returns the findings.

A model passes if the sidecar's own check accepts each form, the reload consumes exactly
those bytes, answers and memory are those of an engine that booted on the step, each kind of tensor
changed alone moves the answers, and a defective version is refused.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rlfleet_contract.engine.rank_report import ReadBack
from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.worker.commands import PrepareRequest
from rlfleet_sidecar.cache.store import VersionStore
from rlfleet_sidecar.checkpoints.check import Checkpoint, Checkpoints
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.proof import evidence, selftest
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.staging.prepare_job import PrepareJob
from rlfleet_sidecar.state import required_tensors
from zoo import forms, keeper
from zoo.engine import Engine, far

_BOOT = "zoo"
_PLAIN = ("save_pretrained", "sharded", "bare")
_WAY_OUT = "names of the base model's files"
_OF_THE_CHECK = "does not match the base model: "


def examine(name: str, *, like_gpu: bool = False) -> dict[str, Any]:
    """Examine one model; returns the row of its table.

    ``like_gpu``: treat weights as on a GPU, where a reload may move no parameter.
    """
    begun = time.monotonic()
    row: dict[str, Any] = {"model": name, "kind": keeper.MODELS[name]["kind"]}
    with TemporaryDirectory() as folder:
        try:
            row |= _Visit(name, Path(folder), like_gpu=like_gpu).seen()
        except Exception as error:  # noqa: BLE001 - whatever fails is this model's row
            row["error"] = f"{type(error).__name__}: {error}"[:500]
    row["passed"] = "error" not in row and not row.get("wrong")
    row["seconds"] = round(time.monotonic() - begun, 1)
    return row


class _Visit:
    def __init__(self, name: str, root: Path, *, like_gpu: bool) -> None:
        self._like_gpu = like_gpu
        self._versions = root / "versions"
        self._versions.mkdir()
        self._step = keeper.base(name, 1, root / "step")
        self._base = keeper.base(name, 0, root / "base")
        keeper.finish(self._step)
        keeper.finish(self._base)
        # Before vLLM is here, which changes classes of transformers (GPT-NeoX).
        self._forms = keeper.forms_of(name, self._step)
        self._settings = SidecarSettings(
            model_name=name,
            model_path=self._base,
            weights_path=f"{self._versions}/{{version}}",
            cache_dir=root / "cache",
            cache_spare=0,
        )
        self._options = {"like_gpu": like_gpu} | keeper.options_of(name, root)
        self._has_own_head = keeper.MODELS[name].get("own_head", False)
        self._wrong: list[str] = []
        self._stale: tuple[str, ...] = ()
        self._booted_answer: tuple[float, ...] = ()
        self._needs: required_tensors.RequiredTensors | None = None
        self._silence: str | None = None
        """Why vLLM cannot answer, where it lacks a kernel; memory alone is compared then."""

    def seen(self) -> dict[str, Any]:
        with self._booted() as engine:
            self._silence = _silence_of(engine)
            row = self._described(engine) if self._silence else self._tested(engine)
            if self._has_own_head:
                self._equal_head(engine)
            stepped = self._taken_up(engine, row)
            row["refused"] = list(self._refused())
            drafter, model = engine.drafter(), engine.model()
        with Engine(self._step, **self._options) as fresh:
            row["from_boot"] = far(self._known_of(fresh), stepped)
            row["drafter"] = len(drafter)
            if left := drafter.items() ^ fresh.drafter().items():
                self._wrong.append(f"the drafter is not the step's: {min(dict(left))}")
            if not fresh.is_quantised and (left := model.items() ^ fresh.model().items()):
                self._wrong.append(f"memory is not the step's: {sorted(dict(left))[:3]}")
        if self._silence:
            is_alike = not self._wrong and not row["from_boot"]
            return row | {"wrong": self._wrong, "error": self._silence, "memory": is_alike}
        if self._stale:
            self._wrong.append(self._why_stale())
        if not selftest.is_faithful(row["from_boot"], row["noise"]):
            self._wrong.append(f"the step reloaded is {row['from_boot']} from its boot")
        return row | {"wrong": self._wrong}

    def _why_stale(self) -> str:
        """Return what a boot with the same tensors changed says of those that moved no answer."""
        named, changed = ", ".join(self._stale), self._base.with_name("changed")
        keeper.change(self._base, changed, self._stale)
        with Engine(changed, **self._options) as fresh:
            is_unused = selftest.is_faithful(far(fresh.ask(), self._booted_answer), 0)
        if is_unused:
            return f"no answer depends on {named}, not of an engine that booted on others either"
        return f"stale: {named}"

    def _booted(self) -> Engine:
        try:
            return Engine(self._base, **self._options)
        except Exception as error:
            raise RuntimeError(f"vLLM failed to boot it: {error}"[:200]) from error

    def _known_of(self, engine: Engine) -> tuple[float, ...]:
        """Return an answer, or sums of the memory of an engine that cannot answer."""
        return tuple(engine.model().values()) if self._silence else engine.ask()

    def _described(self, engine: Engine) -> dict[str, Any]:
        """Return what is known of an engine that cannot answer."""
        told = engine.describe(())
        of_engine = {"architecture": ", ".join(told.architectures), "release": told.release}
        return of_engine | {"device": told.device, "noise": 0.0}

    def _tested(self, engine: Engine) -> dict[str, Any]:
        """Test the reload as a sidecar tests it before an engine serves."""
        booted = [engine.ask(), engine.ask(), engine.ask()]
        noise = max(far(booted[0], answer) for answer in booted)
        model = self._store(engine).checkpoints.boot_model()
        tensors = model.tensors
        told = engine.describe(selftest.kinds_of(tensors, ()))
        files = model.files
        engine.reload(self._base, files)
        base = engine.ask()
        ignored = frozenset(self._needs.optional if self._needs else ())
        ignored |= required_tensors.drafters(model.tensors, model.config)
        kinds = selftest.kinds_of(tensors.keys() - ignored, told.unreached)
        moves = {kind: self._move(engine, base, kind) for kind in kinds}
        constant = sum(by is None for by in moves.values())
        for kind in selftest.unmoved(moves, noise):
            moves[kind] = self._move(engine, base, kind, strength=selftest.FAR)
        if told.unreached:
            self._move(engine, base, *told.unreached)
        spoilt = self._spoilt(engine, files)
        # Whatever vLLM's own reload leaves behind, the next of ours must do without.
        engine.reload_by_vllm(self._base)
        placed = engine.addresses()
        engine.reload(self._base, files)
        left = far(base, engine.ask())
        stale = selftest.unmoved(moves, noise)
        self._wrong += _of_memory(engine, placed, stays=self._like_gpu or told.device != "cpu")
        distance = far(booted[0], base)
        for value, what in ((distance, "the base reloaded"), (left, "the base reloaded again")):
            if not selftest.is_faithful(value, noise):
                self._wrong.append(f"{what} is {value} from its boot")
        self._stale, self._booted_answer = stale, booted[0]
        read = engine.reloaded()
        return {
            "architecture": ", ".join(told.architectures),
            "release": told.release,
            "device": told.device,
            "noise": noise,
            "distance": distance,
            "kinds": len(kinds) - constant,
            "ignored": len(ignored),
            "unreached": len(told.unreached) + constant,
            "ranks": len(read),
            "read_share": _share(read),
            "spoilt": spoilt,
        }

    def _spoilt(self, engine: Engine, files: Sequence[FileStamp]) -> str | None:
        """Spoil a parameter, which a proof must see; return its name if the model has one."""
        if engine.is_quantised:
            return None
        name = engine.reload_spoilt(self._base, files)
        last = engine.reloaded()[-1]
        if name is not None and (last is None or last.differing != (name,)):
            self._wrong.append(f"one wrong value of {name} is not seen")
        return name

    def _move(
        self, engine: Engine, base: Sequence[float], *kinds: str, strength: float = 1.0
    ) -> float | None:
        files = self._store(engine).checkpoints.boot_model().files
        if not selftest.is_changed(engine.reload(self._base, files, kinds, strength)):
            return None
        try:
            return far(base, engine.ask())
        except ValueError:
            # An answer that is not finite shows a change, too.
            return math.inf

    def _equal_head(self, engine: Engine) -> None:
        """Reload a head that equals the embeddings, for which vLLM would drop the head for good."""
        forms.with_equal_head(self._base, self._versions / "equal")
        keeper.finish(self._versions / "equal")
        held = self._prepared(engine, "equal")
        engine.reload(held.directory, held.files)

    def _taken_up(self, engine: Engine, row: dict[str, Any]) -> tuple[float, ...]:
        """Check, copy and reload the step in each form; return the answers of the last."""
        answers: dict[str, tuple[float, ...]] = {}
        refused: dict[str, str] = {}
        for form, write in self._forms.items():
            write(self._versions / form)
            keeper.finish(self._versions / form)
            try:
                held = self._prepared(engine, form)
            except SidecarError as error:
                refused[form] = self._refusal(form, error)
                continue
            # Each form comes over the base, so that what it leaves unread is seen.
            engine.reload(self._base, self._store(engine).checkpoints.boot_model().files)
            # The reload takes what this makes ready: the copies, and memory for packed layers.
            row["zeroed"] = engine.preload(held.directory, held.files)
            installed = engine.reload(held.directory, held.files)
            evidence.demand_consumed(held.tensors, held.nbytes, held.digest, installed)
            answers[form] = self._known_of(engine)
        row["forms"], row["refused_forms"] = sorted(answers), refused
        first = answers["save_pretrained"]
        if any(far(first, other) for other in answers.values()):
            self._wrong.append("forms of one step answer otherwise")
        return first

    def _refusal(self, form: str, error: SidecarError) -> str:
        """Return why a form is refused; what vLLM cannot load must come with the way out."""
        told = error.message
        if form in _PLAIN or _WAY_OUT not in told:
            self._wrong.append(f"{form}: {told}")
        return told.rpartition(_OF_THE_CHECK)[2]

    def _refused(self) -> Iterator[str]:
        """Yield the defects that the check refuses; each must be."""
        victim = next(
            name
            for name in sorted(forms.tensors_of(self._step))
            if self._needs is None or name not in self._needs.optional
        )
        for number, defect in enumerate(forms.DEFECTS):
            version = f"defect-{number}"
            forms.spoilt(self._step, self._versions / version, defect, victim)
            keeper.finish(self._versions / version)
            try:
                self._prepared(None, version)
            except SidecarError:
                yield defect
            else:
                self._wrong.append(f"{defect}: accepted")

    def _prepared(self, engine: Engine | None, version: str) -> Checkpoint:
        store = self._store(engine)
        request = PrepareRequest(operation="zoo", version=version)
        store.prepare(PrepareJob(version, 60), request, lambda: frozenset({BASE_VERSION}))
        return store.demand(version)

    def _store(self, engine: Engine | None) -> VersionStore:
        if engine is not None and self._needs is None:
            names = Checkpoints(self._settings).boot_model().tensors.keys()
            self._needs = required_tensors.reported_by(_BOOT, names, engine.consumed())
        return VersionStore(self._settings, Checkpoints(self._settings, lambda: self._needs))


def _silence_of(engine: Engine) -> str | None:
    """Return why an engine fails to answer, or None."""
    try:
        engine.ask()
    except Exception as error:  # noqa: BLE001 - whatever a kernel raises
        return f"RuntimeError: vLLM boots it but fails to answer: {error!r}"[:200]
    return None


def _of_memory(
    engine: Engine, placed: Mapping[tuple[int, str], int], *, stays: bool
) -> Iterator[str]:
    """Yield what is wrong with a reloaded model's memory."""
    unlike, moved = engine.unlike_on_device(), placed.items() ^ engine.addresses().items()
    if unlike:
        yield f"a GPU computes another digest: {', '.join(unlike)}"
    if stays and moved:
        yield f"moved by a reload: {', '.join(sorted({name for (_, name), _ in moved}))}"


def _share(read: Sequence[ReadBack | None]) -> float | None:
    share = evidence.share_of(read)
    return None if share is None else round(share, 3)
