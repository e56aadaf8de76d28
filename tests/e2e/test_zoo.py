"""Six architectures that differ most change their weights on real vLLM."""

from typing import Any

import pytest

from dev import target, zoo
from dev.shell import Shell

SIX = ("qwen2", "mixtral", "gpt-oss", "deepseek-v3", "qwen2-vl", "mamba2")
"""Biases; experts; fused experts and sinks; MLA; multimodal; state space."""

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, Any]]:
    shell = Shell(target.kubeconfig(), f"{zoo.NAMESPACE}-test", is_quiet=True)
    return {row["model"]: row for row in zoo.examine(shell, list(SIX))}


@pytest.mark.parametrize("name", SIX)
def test_a_model_takes_up_a_step_as_an_engine_that_booted_on_it(
    rows: dict[str, dict[str, Any]], name: str
) -> None:
    row = rows[name]

    assert row.get("error") is None
    assert row["wrong"] == []
    assert row["forms"] == ["bare", "save_pretrained", "sharded"]
    assert row["refused"] == ["a tensor is missing", "another shape"]
    assert row["kinds"] > 0
