"""What is measured of an engine before it proves anything: what a probe costs, and its noise.

The same prompt gives the same log probabilities in an idle engine, and slightly other ones
in a batch with other requests, because sums are then taken in another order. How much that
is depends on model, dtype and kernels, and kernels are chosen by the batch's size, so each
start of an engine is asked, in batches as large as those of the requests that a change
freezes, as far as its time allows. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rlfleet_contract.worker.proof import MAX_LOGPROBS
from rlfleet_sidecar.proof.probe import ProbeAnswer, spread

LENGTHS = (8, 16, 32, MAX_LOGPROBS)
"""Of the prompt, in tokens. A GPU answers the longest in milliseconds; a CPU that has no
instructions for bfloat16 takes seconds, and clients would wait that long."""
COMPANIES = (3, 15, 63)
"""Requests that a measured probe shares its batch with. With the last, and a GPU's prompt, a
batch has 4096 tokens: as many as where frozen requests compute their prefix again."""
_SAFETY = 4.0
"""The largest difference that was seen, times this, is what is put up with."""
_FLOOR = 0.02
"""A difference that is never held against an engine: one node's kernels are not another's."""
_UNMEASURED = 0.25


@dataclass(frozen=True, slots=True)
class Gauge:
    """How one start of an engine is probed, and how far its answers may lie apart."""

    boot: str
    length: int
    """Of the prompt, in tokens."""
    noise: float
    """Largest difference that is put up with between answers of the idle engine."""
    tolerance: float
    """Largest difference that is put up with between answers of equal weights."""


def affordable(shortest_s: float, limit_s: float) -> int:
    """Tell the length of the prompt, given how long the answer to the shortest took.

    The time grows with the length at most.
    """
    fitting = (one for one in LENGTHS if shortest_s * one / LENGTHS[0] <= limit_s)
    return max(fitting, default=LENGTHS[0])


def companies(answer_s: float, limit_s: float) -> tuple[int, ...]:
    """Tell which companies are measured, given how long a probe alone took and all may take.

    A batch takes at most as long as its requests one after the other; the first always is.
    """
    kept: tuple[int, ...] = COMPANIES[:1]
    left_s = limit_s
    for company in COMPANIES[1:]:
        left_s -= answer_s * (company + 1)
        if left_s < 0:
            break
        kept += (company,)
    return kept


def unmeasured(boot: str) -> Gauge:
    """Return what to go by in an engine that was never measured."""
    return Gauge(boot, LENGTHS[0], 0.0, _UNMEASURED)


def gauge(boot: str, alone: Sequence[ProbeAnswer], beside: Sequence[ProbeAnswer]) -> Gauge:
    """Judge answers to one prompt, some given alone and some in company."""
    first = alone[0].logprobs
    idle = max(spread(first, answer.logprobs) for answer in alone)
    largest = max([idle, *(spread(first, answer.logprobs) for answer in beside)])
    tolerance = max(_FLOOR, round(_SAFETY * largest, 6))
    return Gauge(boot, len(first) + 1, round(_SAFETY * idle, 6), tolerance)
