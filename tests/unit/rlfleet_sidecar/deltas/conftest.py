"""A volume with a base model, and a draft directory to build versions in."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from threading import Lock

import pytest

from rlfleet_sidecar.checkpoints.headers import Headers, content_of
from rlfleet_sidecar.checkpoints.safe_paths import Layout, open_model
from rlfleet_sidecar.deltas.fold import FoldedSource
from rlfleet_sidecar.deltas.formats.names import series_of
from rlfleet_sidecar.deltas.open_delta import OpenDelta, opened
from rlfleet_sidecar.deltas.published import Published, published_in
from rlfleet_sidecar.staging.coverage import Coverage
from tests.fakes.checkpoints import write_model
from tests.fakes.deltas.tensors import Tensors, tensors_of

Folded = Callable[..., Tensors]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", seed=0)


@pytest.fixture
def base(model: Path) -> Tensors:
    return tensors_of(model)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    (tmp_path / "weights").mkdir()
    return tmp_path / "weights"


def look(
    weights: Path, version: str, markers: Sequence[str] = (), path: str = "{version}"
) -> Published:
    """Read what a version's directory contains."""
    found = series_of(version)
    assert found is not None
    with Layout.of(f"{weights}/{path}").open(version, None) as folders:
        return published_in(folders, *found, markers, time.monotonic() + 30)


@pytest.fixture
def fold(model: Path, weights: Path, tmp_path: Path) -> Folded:
    """Apply published versions to the base model, in passes; returns the tensors."""
    drafts = count()
    return lambda *passes: folded(model, weights, tmp_path / f"draft-{next(drafts)}", passes)


def folded(model: Path, weights: Path, draft: Path, passes: Sequence[Sequence[str]]) -> Tensors:
    draft.mkdir()
    covered: dict[str, Coverage] = {}
    lock = Lock()

    def done(name: str, begin: int, end: int) -> None:
        with lock:
            if end > begin:
                covered.setdefault(name, Coverage()).add(begin, end)

    with open_model(model) as start:
        content = content_of(start, time.monotonic() + 30)
        runs = [partial(_opened, weights, versions, content) for versions in passes]
        source = FoldedSource(start, content, runs, 2, weights)
        source.fill(draft, done)
    for name, size in source.sizes.items():
        assert covered[name].until(0) == size == (draft / name).stat().st_size
    return tensors_of(draft)


@contextmanager
def _opened(
    weights: Path, versions: Sequence[str], content: Headers
) -> Iterator[Sequence[OpenDelta]]:
    with ExitStack() as stack:
        deltas: list[OpenDelta] = []
        for version in versions:
            published = look(weights, version)
            assert published.delta is not None
            layout = Layout.of(f"{weights}/{{version}}")
            folder = stack.enter_context(layout.open(version, None))[-1]
            one = stack.enter_context(opened(folder, published.delta, published.files))
            one.demand_applicable(content.tensors)
            deltas.append(one)
        yield deltas
