"""Neighbouring steps on real vLLM: a little noise is another version, and each layer shows it."""

import pytest

from tests.e2e.scenario import Fleet, Trainer
from tests.e2e.test_checkpoints import HELP

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]

NOISE = (
    HELP
    + """
import array, random
def noise(scale):
    '''Add Gaussian noise of ``scale`` times each tensor's root mean square; BF16 only.'''
    random.seed(1)
    found, data = split()
    data, moved = bytearray(data), 0
    for name, about in found.items():
        if name == '__metadata__':
            continue
        begin, end = about['data_offsets']
        halves = array.array('H', bytes(data[begin:end]))
        values = array.array('f', array.array('I', (h << 16 for h in halves)).tobytes())
        size = scale * (sum(x * x for x in values) / len(values)) ** 0.5
        noisy = array.array('f', (x + random.gauss(0, size) for x in values))
        rounded = ((bits + 0x8000) >> 16 for bits in array.array('I', noisy.tobytes()))
        after = array.array('H', rounded)
        moved += sum(a != b for a, b in zip(halves, after))
        data[begin:end] = after.tobytes()
    assert moved, 'the noise is below what the dtype can represent'
    write(found, bytes(data))
"""
)
PACKS = """
import torch
from vllm.platforms import current_platform
current_platform.import_kernels()
print(hasattr(torch.ops._C, 'create_onednn_mm_handler'))
"""
"""Whether vLLM's kernels for this processor have oneDNN, whose packed weights cannot be read."""
ALONE = ["Installed", "Parameters", "Probe"]
TESTED = ["Faithful", "Sensitive"]
"""What the engine's own test of its reload adds."""


def packs(fleet: Fleet) -> bool:
    inside = ("exec", "qwen-0", "-c", "engine", "--", "python3", "-c", PACKS)
    return fleet.shell.kubectl(*inside).strip().endswith("True")


@pytest.mark.parametrize("scale", [pytest.param("1e-3", marks=pytest.mark.release), "1e-4"])
def test_a_neighbouring_step_is_proved_in_all_layers(
    fleet: Fleet, trainer: Trainer, scale: str
) -> None:
    fleet.declare("step-1")
    fleet.wait_synced()
    trainer.write(f"near-{scale}", "step-1", f"{NOISE}\nnoise({scale})")

    fleet.declare(f"near-{scale}")
    status = fleet.wait_synced()

    first, second = (worker["verifiedBy"] for worker in status["workers"])
    assert first == [*ALONE, *TESTED]
    assert second == [*ALONE, "Peers", *TESTED]
    one, other = (worker["readBackPercent"] for worker in status["workers"])
    assert one == other
    assert one == 100 or packs(fleet)
    answers = fleet.answers()
    assert answers["qwen-0"] == answers["qwen-1"]
