"""A reload of layers that a kernel packs, with memory that a preload made ready for it.

Only some processors pack; here all layers are packed on each of them.
"""

from typing import Any

import pytest

from dev import target, zoo
from dev.shell import Shell

THREE = ("llama-tied", "qwen3-moe", "mamba2")
"""A tied head; experts; buffers that view parameters."""

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, Any]]:
    shell = Shell(target.kubeconfig(), f"{zoo.NAMESPACE}-packed", is_quiet=True)
    return {row["model"]: row for row in zoo.examine(shell, list(THREE), "--packed")}


@pytest.mark.parametrize("name", THREE)
def test_a_model_takes_up_a_step_though_its_layers_are_packed(
    rows: dict[str, dict[str, Any]], name: str
) -> None:
    row = rows[name]

    assert row.get("error") is None
    assert row["wrong"] == []
    # Packed layers cannot be read, so the run had some.
    assert row["read_share"] < 1
    assert row["zeroed"] > 0
