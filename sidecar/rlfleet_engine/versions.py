"""Which vLLM this extension was tested on, and a clear word about any other.

The extension leans on how one vLLM release names routes and reloads weights.
Another release may differ silently, so there is no switch to go on regardless.
"""

import sys

TESTED = ("0.32.",)
"""Beginnings of the vLLM versions that the contract suite ran against."""


def check(version: str) -> None:
    """Refuse a vLLM that the contract suite never ran against."""
    if not version.startswith(TESTED):
        raise RuntimeError(
            f"rlfleet's engine extension was tested on vLLM {', '.join(TESTED)}x and this is"
            f" vLLM {version}: use an engine image with a tested vLLM, or a release of rlfleet"
            " that names this one"
        )


def check_loaded() -> None:
    """Check the vLLM of this process; outside of vLLM (fake engine, tests) there is none."""
    vllm = sys.modules.get("vllm")
    if vllm is not None:
        check(str(vllm.__version__))
