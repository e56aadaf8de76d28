"""A reload as on a GPU: layer by layer, into parameters that stay where they are."""

from typing import Any

import pytest

from dev import target, zoo
from dev.shell import Shell

PLAIN = ("llama-tied", "qwen2", "gpt-oss", "qwen3-moe", "qwen3-moe-tp2")
"""A tied head; a step of the model's own after each load (zoo/like_gpu.py); copies past the
loaders; experts, also on two ranks, which are new processes.
"""
QUANTISED = ("llama-fp8-online", "llama-fp8-blocks")
"""By vLLM while it loads; by a trainer. Their memory is not read back."""
TEXT_ONLY = "deepseek-ocr"
"""Parameters next to the tower, which is left out, have no memory."""

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, Any]]:
    shell = Shell(target.kubeconfig(), f"{zoo.NAMESPACE}-like-gpu", is_quiet=True)
    names = [*PLAIN, *QUANTISED, TEXT_ONLY]
    return {row["model"]: row for row in zoo.examine(shell, names, "--like-gpu")}


@pytest.mark.parametrize("name", PLAIN)
def test_a_model_takes_up_a_step_by_the_reload_of_a_gpu(
    rows: dict[str, dict[str, Any]], name: str
) -> None:
    row = rows[name]

    assert row.get("error") is None
    assert row["wrong"] == []
    assert row["spoilt"] is not None
    assert row["read_share"] == 1


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_weights_take_up_a_step_by_the_reload_of_a_gpu(
    rows: dict[str, dict[str, Any]], name: str
) -> None:
    row = rows[name]

    assert row.get("error") is None
    assert row["wrong"] == []
    assert row["read_share"] is None


def test_a_text_only_engine_takes_up_a_step_by_the_reload_of_a_gpu(
    rows: dict[str, dict[str, Any]],
) -> None:
    row = rows[TEXT_ONLY]

    assert row.get("error") is None
    assert row["wrong"] == []
    assert row["read_share"] == 1
