"""Where the pointer may move: forward within a run, or to another run. Pure."""

from rlfleet.publish import layout
from rlfleet.publish.errors import PublishError


def demand_forward(found: str, run: str, version: int) -> None:
    """Raise if the pointer may not move from what was found to this version."""
    if not found.strip():
        return
    now = layout.parsed_pointer(found)
    if now is None:
        raise PublishError(
            f"{layout.POINTER} holds {found[:60]!r} (expected RUN/weight_vNNNNNN); remove it"
        )
    if now[0] == run and now[1] >= version:
        raise PublishError(
            f"{layout.POINTER} names {found.strip()}, which is not before"
            f" {layout.pointer_to(run, version)}; let one trainer write a run, or begin one with"
            " another name"
        )
