"""Which requests for pieces a worker answers next."""

from rlfleet_sidecar.sharing.turns import AT_ONCE, PieceTurn, Turns

NEAR, FAR = "10.0.0.2", "10.0.0.3"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Sender:
    """The turns of one worker, and the receivers whose pieces it began to send."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.turns = Turns(self.clock)
        self.begun: list[str] = []

    def ask(self, receiver: str, *, forwards: bool = True) -> PieceTurn:
        turn = PieceTurn(receiver, forwards, lambda: self.begun.append(receiver))
        self.turns.ask(turn)
        return turn


def test_a_receiver_is_sent_few_pieces_at_once_in_the_order_of_its_requests() -> None:
    sender = Sender()
    turns = [sender.ask(NEAR) for _ in range(AT_ONCE + 2)]

    assert [turn.begun_at is not None for turn in turns] == [*[True] * AT_ONCE, False, False]
    sender.turns.end(turns[0])
    assert turns[AT_ONCE].begun_at is not None
    assert turns[AT_ONCE + 1].begun_at is None


def test_receivers_that_forward_do_not_wait_for_one_another() -> None:
    sender = Sender()
    for receiver in (NEAR, FAR) * AT_ONCE:
        sender.ask(receiver)

    assert sender.begun == [NEAR, FAR] * AT_ONCE


def test_a_receiver_that_forwards_nothing_waits_for_one_that_does() -> None:
    sender = Sender()
    first = sender.ask(NEAR)
    sender.ask(FAR, forwards=False)
    second = sender.ask(NEAR)
    assert sender.begun == [NEAR, NEAR]

    sender.turns.end(first)
    assert sender.begun == [NEAR, NEAR]
    sender.turns.end(second)
    assert sender.begun == [NEAR, NEAR, FAR]


def test_the_only_receiver_does_not_wait_though_it_forwards_nothing() -> None:
    sender = Sender()

    sender.ask(FAR, forwards=False)

    assert sender.begun == [FAR]


def test_a_receiver_that_takes_long_holds_up_no_other() -> None:
    sender = Sender()
    sender.ask(NEAR)
    sender.clock.now += 10.0

    sender.ask(FAR, forwards=False)

    assert sender.begun == [NEAR, FAR]


def test_a_request_that_was_given_up_frees_its_place() -> None:
    sender = Sender()
    turns = [sender.ask(NEAR) for _ in range(AT_ONCE + 2)]

    sender.turns.end(turns[-2])
    sender.turns.end(turns[-2])
    sender.turns.end(turns[0])

    assert turns[-1].begun_at is not None
