"""The journal's file: the last record, the one before a cut one, or none; never another."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.state.journal_file import JournalRecord, read
from rlfleet_sidecar.state.journal_log import JournalLog, last_record, line_of
from rlfleet_sidecar.state.stage_machine import State

RECORDS = st.lists(
    st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=30).map(
        lambda text: '{"r":"' + text + '"}'
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(RECORDS)
def test_a_file_that_is_cut_anywhere_has_the_last_whole_record(records: list[str]) -> None:
    """Nothing begins before its record is written, so the record before it is true."""
    ends, content = [0], b""
    for record in records:
        content += line_of(record)
        ends.append(len(content))

    for cut in range(len(content) + 1):
        # The line break alone adds nothing to a record.
        whole = sum(end - 1 <= cut for end in ends[1:])
        expected = records[whole - 1].encode() if whole else None
        assert last_record(content[:cut]) == expected, cut
        assert last_record(content[:cut] + b"\0\0\0") == expected, "after a crash of the node"


@settings(max_examples=60, deadline=None)
@given(RECORDS, st.integers(1, 255))
def test_a_byte_that_changed_gives_the_last_record_or_none(records: list[str], bits: int) -> None:
    """Never an earlier one: the engine may not hold what that names."""
    content = b"".join(map(line_of, records))
    last_begins = len(content) - len(line_of(records[-1]))

    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= bits
        found = last_record(bytes(damaged))
        if damaged[0] == ord("{"):
            with pytest.raises(ValidationError):
                JournalRecord.model_validate_json(found or b"")
        else:
            assert found in {None, records[-1].encode()}, place
            assert place >= last_begins - 1 or found is not None, place


def test_an_earlier_releases_file_is_read_and_then_replaced(tmp_path: Path) -> None:
    path, record = tmp_path / "worker.json", JournalRecord(state=State(stage=Stage.OPEN))
    path.write_text(record.model_dump_json())
    assert read(path) == record

    JournalLog(path).write(record.model_dump_json())

    assert path.read_bytes() == line_of(record.model_dump_json())
    assert read(path) == record


@pytest.mark.parametrize("count", [1, 3])
def test_an_earlier_release_takes_the_file_for_invalid(tmp_path: Path, count: int) -> None:
    """It then proves nothing until a reload; it must not find a record that is no longer true."""
    path, record = tmp_path / "worker.json", JournalRecord(state=State(stage=Stage.OPEN))
    log = JournalLog(path)
    for _ in range(count):
        log.write(record.model_dump_json())

    with pytest.raises(ValidationError):
        JournalRecord.model_validate_json(path.read_bytes())


def test_the_file_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlfleet_sidecar.state.journal_log.MOST_BYTES", 200)
    path = tmp_path / "worker.json"
    log = JournalLog(path)

    for number in range(100):
        log.write(f'{{"n": {number}}}')
        assert path.stat().st_size <= 200
        assert last_record(path.read_bytes()) == b'{"n": %d}' % number


def test_a_record_after_a_cut_one_replaces_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "worker.json"
    log = JournalLog(path)
    log.write('{"n": 1}')
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, line, write=os.write: write(file, line[:20]))
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            log.write('{"n": 2}')
    assert last_record(path.read_bytes()) == b'{"n": 1}'

    log.write('{"n": 3}')

    assert path.read_bytes() == line_of('{"n": 3}')


@pytest.mark.parametrize("how", ["replaced", "extended"])
def test_a_file_that_another_process_wrote_is_replaced(tmp_path: Path, how: str) -> None:
    path = tmp_path / "worker.json"
    log = JournalLog(path)
    log.write('{"n": 1}')
    if how == "extended":
        path.write_bytes(path.read_bytes() + b"0000")
    else:
        (tmp_path / "other").write_bytes(path.read_bytes())
        (tmp_path / "other").replace(path)

    log.write('{"n": 2}')

    assert path.read_bytes() == line_of('{"n": 2}')


def test_records_are_appended_to_one_file_until_one_has_to_last(tmp_path: Path) -> None:
    path = tmp_path / "worker.json"
    log = JournalLog(path)
    log.write('{"n": 1}')
    first = path.stat().st_ino
    log.write('{"n": 2}')
    assert (path.stat().st_ino, path.read_bytes().count(b"\n")) == (first, 2)

    log.write('{"n": 3}', lasting=True)

    assert path.read_bytes() == line_of('{"n": 3}')


def test_a_file_that_replaces_a_synced_one_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a crash of the node could take an epoch that had to last."""
    synced: list[int] = []
    sync = os.fsync

    def noting(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    path = tmp_path / "worker.json"
    JournalLog(path).write('{"n": 1}', lasting=True)

    log = JournalLog(path)
    log.write('{"n": 2}')
    assert path.stat().st_ino in synced, "the first record after a start"
    log.write('{"n": 3}')
    assert path.read_bytes() == line_of('{"n": 2}') + line_of('{"n": 3}'), "no sync for each"
    count = len(synced)

    monkeypatch.setattr("rlfleet_sidecar.state.journal_log.MOST_BYTES", 10)
    log.write('{"n": 4}')
    assert path.stat().st_ino in synced[count:], "the first record after a MiB"
