"""How many writes to pods are begun at once."""

from rlfleet_operator.core.model.actions import (
    CreatePod,
    DeletePod,
    MarkPod,
    PodAction,
    first_of_each,
)


def test_what_is_refused_of_one_kind_holds_up_no_other() -> None:
    creates: list[PodAction] = [CreatePod(ordinal) for ordinal in range(200)]
    deleted, marked = (
        DeletePod("a", "1", "scaled down"),
        MarkPod("b", "2", ready=True, version="step-1", message=""),
    )

    assert first_of_each([*creates, deleted, marked], 128) == [*creates[:128], deleted, marked]
