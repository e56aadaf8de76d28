"""On a CPU memory is read while the engine works, and its result is awaited."""

from threading import Event, Thread

import pytest

from rlfleet_engine.reload.model_reading import ModelReading
from rlfleet_engine.reload.read_back import Memory, RankRecord, ReadTensor

BEFORE = RankRecord({"norm": ReadTensor("bfloat16", (4,), 8, 1)})
AFTER: Memory = {"norm": ReadTensor("bfloat16", (4,), 8, 2)}
LOADED = RankRecord(None, AFTER, "d2")


def test_on_a_cpu_it_returns_at_once_and_its_result_is_awaited() -> None:
    gate, found = Event(), []

    def read() -> Memory:
        assert gate.wait(10)
        return AFTER

    reading = ModelReading(BEFORE, LOADED, read, frozenset(), is_beside=True)
    waiting = Thread(target=lambda: found.append(reading.record()))
    waiting.start()
    waiting.join(0.2)

    assert waiting.is_alive()
    gate.set()
    waiting.join(10)
    assert found == [RankRecord(AFTER, AFTER, "d2")]


def test_on_another_device_it_is_complete_when_it_returns() -> None:
    complete = Event()

    def read() -> Memory:
        complete.set()
        return AFTER

    reading = ModelReading(BEFORE, LOADED, read, frozenset({"norm"}), is_beside=False)

    assert complete.is_set()
    report = reading.report()
    assert report is not None
    assert (report.changed, report.fed, report.as_fed) == (True, 8, 8)
    assert reading.plain() == {"norm"}


def test_memory_that_cannot_be_read_has_no_report() -> None:
    reading = ModelReading(BEFORE, LOADED, lambda: None, frozenset({"norm"}), is_beside=True)

    assert reading.record().memory is None
    assert reading.report() is None
    assert reading.plain() == frozenset()


def test_its_error_is_raised_where_the_result_is_needed() -> None:
    def read() -> Memory:
        raise OSError("memory fails")

    reading = ModelReading(BEFORE, LOADED, read, frozenset(), is_beside=True)

    for need in (reading.record, reading.report, reading.plain):
        with pytest.raises(OSError, match="memory fails"):
            need()
