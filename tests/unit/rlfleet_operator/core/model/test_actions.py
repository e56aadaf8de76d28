"""How many writes to pods are begun at once."""

from rlfleet_operator.core.model.actions import (
    CreatePod,
    DeletePod,
    MarkPod,
    PodAction,
    first_of_each,
    rest_s,
)


def test_what_is_refused_of_one_kind_holds_up_no_other() -> None:
    creates: list[PodAction] = [CreatePod(ordinal) for ordinal in range(200)]
    deleted, marked = (
        DeletePod("a", "1", "scaled down"),
        MarkPod("b", "2", ready=True, version="step-1", message=""),
    )

    assert first_of_each([*creates, deleted, marked], 128) == [*creates[:128], deleted, marked]


def _mark(ordinal: int, *, regates: bool) -> MarkPod:
    return MarkPod(f"qwen-{ordinal}", "u", ready=True, version="v", message="", regates=regates)


def test_gates_are_written_before_labels_and_labels_at_a_rate() -> None:
    labels = [_mark(ordinal, regates=False) for ordinal in range(1000)]
    gates = [_mark(ordinal, regates=True) for ordinal in range(1000, 1010)]

    batch = first_of_each([*labels, *gates], 128)

    assert batch[:10] == gates
    assert batch[10:] == labels[: len(batch) - 10]
    written = len(batch) - 10
    assert 0 < written <= 100
    assert rest_s(batch, 0.0) == written / 100
    assert rest_s(batch, 60.0) == 0.0


def test_no_batch_without_a_label_is_followed_by_a_rest() -> None:
    assert rest_s([_mark(0, regates=True), CreatePod(1)], 0.0) == 0.0
