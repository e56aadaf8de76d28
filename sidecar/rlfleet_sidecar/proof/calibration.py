"""Calibration of an engine before its first proof: the time of a probe, and its noise. Pure.

The same prompt gives the same log probabilities in an idle engine, and slightly different ones
in a batch with other requests, because sums are then computed in another order. The difference
depends on model, dtype and kernels, and kernels depend on the batch's size. So each boot is
measured, in batches as large as those of the requests that a change freezes, as far as the
time allows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rlfleet_contract.worker.proof import MAX_LOGPROBS
from rlfleet_sidecar.proof.probe import ProbeAnswer, spread

LENGTHS = (8, 16, 32, MAX_LOGPROBS)
"""Lengths of the prompt in tokens. A GPU answers the longest in milliseconds; a CPU without
instructions for bfloat16 takes seconds, for which clients would wait."""
COMPANIES = (3, 15, 63)
"""Numbers of other requests in a measured probe's batch. With the last and a GPU's prompt, it
has 4096 tokens: as many as when frozen requests compute their prefix again."""
_SAFETY = 4.0
"""The tolerance is the largest difference seen, times this."""
_FLOOR = 0.02
"""The smallest tolerance, because nodes' kernels differ."""
_UNMEASURED = 0.25


@dataclass(frozen=True, slots=True)
class Calibration:
    """How one boot is probed, and how far its answers may differ."""

    boot: str
    length: int
    """Length of the prompt in tokens."""
    noise: float
    """Largest accepted difference between answers of the idle engine."""
    tolerance: float
    """Largest accepted difference between answers of equal weights."""


def affordable(shortest_s: float, limit_s: float) -> int:
    """Return the length of the prompt, from the time of the shortest.

    The time grows at most linearly with the length.
    """
    fitting = (one for one in LENGTHS if shortest_s * one / LENGTHS[0] <= limit_s)
    return max(fitting, default=LENGTHS[0])


def companies(answer_s: float, limit_s: float) -> tuple[int, ...]:
    """Return the companies to measure, from the time of one probe and a limit for all.

    A batch takes at most as long as its requests in sequence. The first company always counts.
    """
    kept: tuple[int, ...] = COMPANIES[:1]
    left_s = limit_s
    for company in COMPANIES[1:]:
        left_s -= answer_s * (company + 1)
        if left_s < 0:
            break
        kept += (company,)
    return kept


def unmeasured(boot: str) -> Calibration:
    """Return the gauge of an engine that was never measured."""
    return Calibration(boot, LENGTHS[0], 0.0, _UNMEASURED)


def gauge(boot: str, alone: Sequence[ProbeAnswer], batched: Sequence[ProbeAnswer]) -> Calibration:
    """Return the gauge from answers to one prompt, some alone and some in a batch."""
    first = alone[0].logprobs
    idle = max(spread(first, answer.logprobs) for answer in alone)
    largest = max([idle, *(spread(first, answer.logprobs) for answer in batched)])
    tolerance = max(_FLOOR, round(_SAFETY * largest, 6))
    return Calibration(boot, len(first) + 1, round(_SAFETY * idle, 6), tolerance)
