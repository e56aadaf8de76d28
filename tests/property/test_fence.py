"""Any interleaving of drivers, repeats, lost answers and restarts: one effect, one answer."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from rlfleet_contract.worker.fence import Fence
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.state.fence_rules import SeenCommands, StoredAnswer, judge_fence


@dataclass
class Sidecar:
    """Receives, acts and answers as the real one does, with a journal that survives it."""

    written: str = field(default_factory=lambda: SeenCommands().model_dump_json())
    under_way: list[tuple[int, int]] = field(default_factory=list)
    begun: list[tuple[int, int]] = field(default_factory=list)
    """Each time that a command was begun, or begun again after the sidecar's death."""

    @property
    def seen(self) -> SeenCommands:
        return SeenCommands.model_validate_json(self.written)

    def take(self, fence: Fence) -> StoredAnswer | Code | None:
        """Take a command; None while it is being carried out."""
        place = (fence.epoch, fence.sequence)
        try:
            answer = judge_fence(self.seen, fence, "d", is_under_way=place in self.under_way)
        except SidecarError as error:
            return error.code
        if answer is None and place not in self.under_way:
            self.written = self.seen.receiving(fence, "d").model_dump_json()
            self.begun.append(place)
            self.under_way.append(place)
        return answer

    def end_one(self) -> None:
        if self.under_way:
            epoch, sequence = self.under_way.pop(0)
            answer = StoredAnswer(status=200, body=f"{epoch}/{sequence}")
            self.written = self.seen.answering(fence_of(epoch, sequence), answer).model_dump_json()

    def die(self) -> None:
        self.under_way.clear()


def fence_of(epoch: int, sequence: int) -> Fence:
    return Fence(fleet="f", pod="p", epoch=epoch, sequence=sequence)


SENT = st.tuples(st.integers(0, 3), st.integers(0, 25))
STEPS = st.lists(st.one_of(SENT, SENT, SENT, st.sampled_from(["end", "die", "beat"])), max_size=120)


@given(STEPS)
def test_nothing_of_a_lower_epoch_has_an_effect_and_a_number_has_one(
    steps: list[tuple[int, int] | str],
) -> None:
    sidecar = Sidecar()
    answers: dict[tuple[int, int], StoredAnswer] = {}
    cut_off: set[tuple[int, int]] = set()
    highest = -1
    for step in steps:
        if step == "end":
            sidecar.end_one()
        elif step == "die":
            cut_off |= set(sidecar.under_way)
            sidecar.die()
        elif step == "beat":
            highest += 1
            sidecar.written = sidecar.seen.at(highest).model_dump_json()
        elif not isinstance(step, str):
            begun = len(sidecar.begun)
            last = max((place for place in sidecar.begun if place[0] == step[0]), default=None)
            answer = sidecar.take(fence_of(*step))
            if len(sidecar.begun) > begun:
                assert step[0] >= highest
                assert step not in answers
                assert last is None or step > last or (step == last and step in cut_off)
                cut_off.discard(step)
            if isinstance(answer, StoredAnswer):
                assert answers.setdefault(step, answer) == answer
                assert answer.body == f"{step[0]}/{step[1]}"
            highest = max(highest, step[0])
            assert sidecar.seen.epoch == highest
