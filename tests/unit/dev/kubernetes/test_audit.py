"""The audit log as kube-apiserver writes it, over the files that it renames."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dev.kubernetes import audit

USER = "system:serviceaccount:rlfleet:rlfleet"
FULL = ("2026-11-29T08-00-00.000", "2026-11-29T09-00-00.125")
"""What the names of full files end in (backupTimeFormat of lumberjack)."""


def line(name: str, user: str = USER, decision: str = "allow") -> str:
    event = {
        "verb": "get",
        "user": {"username": user},
        "objectRef": {"resource": "leases", "apiGroup": "coordination.k8s.io", "name": name},
        "annotations": {"authorization.k8s.io/decision": decision},
        "requestReceivedTimestamp": "2026-11-29T08:00:00.000125Z",
    }
    return json.dumps(event) + "\n"


def write(log: Path, *lines: str) -> None:
    with log.open("a") as file:
        file.writelines(lines)


def renamed(log: Path, when: str) -> None:
    log.rename(log.with_name(f"audit-{when}.log"))


def names(log: Path, begin: audit.Position | None = None) -> list[str]:
    return [one.name for one in audit.asked(log, USER, begin)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two full files and the newest, with two requests each."""
    found = audit.log_in(tmp_path)
    for number, when in enumerate((*FULL, None)):
        write(found, line(f"{number}a"), line("other", "system:admin"), line(f"{number}b"))
        if when:
            renamed(found, when)
    return found


def test_requests_are_read_from_all_files_in_their_order(log: Path) -> None:
    assert names(log) == ["0a", "0b", "1a", "1b", "2a", "2b"]


def test_since_a_position_only_what_is_newer_counts_however_many_files_began(log: Path) -> None:
    begin = audit.position(log)
    assert names(log, begin) == []

    write(log, line("2c"))
    renamed(log, "2026-11-29T10-00-00.000")
    write(log, line("3a"), line("3b"), line("3c"), line("3d"))

    assert names(log, begin) == ["2c", "3a", "3b", "3c", "3d"]


def test_what_is_left_counts_if_the_file_of_a_position_is_deleted(log: Path) -> None:
    begin = audit.position(log)
    renamed(log, "2026-11-29T10-00-00.000")
    write(log, line("3a"))
    log.with_name("audit-2026-11-29T10-00-00.000.log").unlink()

    assert names(log, begin) == ["0a", "0b", "1a", "1b", "3a"]


def test_a_line_that_is_being_written_is_not_read(log: Path) -> None:
    write(log, line("2c")[:-9])

    assert names(log)[-1] == "2b"


def test_without_a_file_nothing_was_asked(tmp_path: Path) -> None:
    log = audit.log_in(tmp_path)

    assert audit.position(log) is None
    assert names(log) == []


def test_a_denied_request_has_its_time(log: Path) -> None:
    write(log, line("2c", decision="forbid"))

    (found,) = audit.denied(audit.asked(log, USER))

    assert (found.name, found.verb) == ("2c", "get")
    assert found.at == datetime(2026, 11, 29, 8, microsecond=125, tzinfo=UTC)
