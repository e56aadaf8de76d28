"""Models that differ most change their weights on real vLLM."""

from typing import Any

import pytest

from dev import target, zoo
from dev.shell import Shell

PLAIN = ["bare", "save_pretrained", "sharded"]
OWN_NAMES = {
    name: ["state_dict"] for name in ("qwen3-moe", "qwen2-vl", "bloom", "qwen2.5-vl-eagle3")
}
"""Forms of those whose trainer has names of its own, and vLLM takes them."""
REFUSED = {"deepseek-v3": ["state_dict"], "llava-onevision": ["state_dict"]}
DIFFERENT = (
    *("qwen2", "qwen3-moe", "gpt-oss", "deepseek-v3", "qwen2-vl", "llava-onevision", "mamba2"),
    *("bloom", "deepseek-v3-mtp", "llama-own-head", "k2-horizon", "qwen2.5-vl-eagle3"),
)
"""Biases; experts; fused experts and sinks; MLA; multimodal; multimodal without a mapping of its
parts; state space; a loader that fails on a tied head; layers that propose tokens; a head that is
said to be tied; a router whose bias is in float32; a drafter with files of its own."""
QUANTISED = ("llama-fp8", "llama-int4", "llama-gptq")
"""Scales of the KV cache; shapes among the tensors; zero points that are all the same."""

pytestmark = [pytest.mark.release, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, Any]]:
    shell = Shell(target.kubeconfig(), f"{zoo.NAMESPACE}-test", is_quiet=True)
    return {row["model"]: row for row in zoo.examine(shell, [*DIFFERENT, *QUANTISED])}


@pytest.mark.parametrize("name", DIFFERENT + QUANTISED)
def test_a_model_takes_up_a_step_as_an_engine_that_booted_on_it(
    rows: dict[str, dict[str, Any]], name: str
) -> None:
    row = rows[name]

    assert row.get("error") is None
    assert row["wrong"] == []
    assert row["forms"] == PLAIN + OWN_NAMES.get(name, [])
    assert sorted(row["refused_forms"]) == REFUSED.get(name, [])
    assert row["refused"] == ["a tensor is missing", "another shape"]
    assert row["kinds"] > 0
    assert (row["drafter"] > 0) == name.endswith("-mtp")
