"""A crew is left once its threads have ended, with the first error of one."""

import threading

import pytest

from rlfleet_sidecar.staging.crew import Crew


def test_the_first_error_ends_the_others_and_is_raised() -> None:
    over, ended = threading.Event(), []

    def fail() -> None:
        raise KeyError("first")

    def wait() -> None:
        assert over.wait(30)
        ended.append(1)

    def block() -> None:
        with Crew("test", over.set) as crew:
            crew.start(3, wait)
            crew.start(1, fail)

    with pytest.raises(KeyError, match="first"):
        block()
    assert len(ended) == 3


def test_an_error_of_the_block_ends_the_threads_and_is_raised() -> None:
    over = threading.Event()
    left = []

    def wait() -> None:
        assert over.wait(30)
        left.append(1)

    def block() -> None:
        with Crew("test", over.set) as crew:
            crew.start(2, wait)
            raise KeyError("block")

    with pytest.raises(KeyError, match="block"):
        block()
    assert len(left) == 2


def test_what_a_thread_met_first_is_raised_instead_of_what_it_caused() -> None:
    over = threading.Event()

    def fail() -> None:
        raise KeyError("cause")

    def block() -> None:
        with Crew("test", over.set) as crew:
            crew.start(1, fail)
            assert over.wait(30)
            raise ValueError("effect")

    with pytest.raises(KeyError, match="cause"):
        block()


def test_its_threads_keep_no_process_from_ending() -> None:
    seen = []

    with Crew("test") as crew:
        crew.start(1, lambda: seen.append(threading.current_thread().daemon))

    assert seen == [True]
