"""Which models are known to keep old weights when a trainer sends new ones."""

import pytest

from rlfleet_engine.vllm.sendable import objection


@pytest.mark.parametrize(
    ("device", "architecture", "expected"),
    [
        ("cuda", "Qwen3ForCausalLM", None),
        ("cuda", "GptOssForCausalLM", "leaves its experts and attention sinks as they were"),
        ("cuda", "MiMoV2ForCausalLM", "leaves its attention sinks as they were"),
        ("cpu", "Qwen3ForCausalLM", "on a CPU"),
    ],
)
def test_what_is_copied_past_the_loaders_or_packed_is_not_sent(
    device: str, architecture: str, expected: str | None
) -> None:
    found = objection(device, [architecture])

    assert found == expected if expected is None else expected in (found or "")
