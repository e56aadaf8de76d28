"""A start takes what its image knows of the models, and never fails for want of it."""

from pathlib import Path

import pytest

from rlfleet_engine.vllm import model_infos


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The answers that an image has."""
    folder = tmp_path / "image"
    folder.mkdir()
    (folder / "qwen3.json").write_text('{"hash": "image"}')
    return folder


def test_answers_of_the_image_are_copied(kept: Path, tmp_path: Path) -> None:
    cache = tmp_path / "home" / ".cache" / "vllm" / "modelinfos"

    model_infos.bring(kept, cache)

    assert (cache / "qwen3.json").read_text() == '{"hash": "image"}'


def test_answers_of_an_earlier_start_stay(kept: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "qwen3.json").write_text('{"hash": "start"}')

    model_infos.bring(kept, cache)

    assert (cache / "qwen3.json").read_text() == '{"hash": "start"}'


def test_an_image_without_answers_starts_all_the_same(tmp_path: Path) -> None:
    model_infos.bring(tmp_path / "none", tmp_path / "cache")

    assert not (tmp_path / "cache").exists()


def test_a_cache_that_cannot_be_written_is_said_and_no_error(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()

    model_infos.bring(kept, tmp_path / "file" / "modelinfos")

    assert "no model infos" in capsys.readouterr().err
