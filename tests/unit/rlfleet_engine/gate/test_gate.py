"""One flag for all processes of one engine start, and counts that stay right."""

import asyncio
import fcntl
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlfleet_engine.gate.gate import Gate


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gate"


def test_a_gate_is_closed_at_boot_and_after_every_new_boot(file: Path) -> None:
    first = Gate(file, "boot-1")
    assert not first.is_open
    first.open()

    assert Gate(file, "boot-1").is_open
    assert not Gate(file, "boot-2").is_open


@pytest.mark.parametrize("content", [b"", b"rubbish", b"x" * 4096])
def test_a_damaged_file_counts_as_closed(file: Path, content: bytes) -> None:
    file.write_bytes(content)

    assert not Gate(file, "boot-1").is_open


def test_a_link_in_place_of_the_file_is_refused(file: Path, tmp_path: Path) -> None:
    file.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="symbolic"):
        Gate(file, "boot-1")


@pytest.fixture
def without_free_files() -> Iterator[None]:
    """The process can open no further file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_without_free_descriptors_still_moves_its_gate(
    file: Path, request: pytest.FixtureRequest
) -> None:
    gate = Gate(file, "boot-1")
    request.getfixturevalue("without_free_files")

    with gate.passing(), gate.locked():
        gate.open()
        counted = gate.totals()

    assert gate.is_open
    assert counted == (0, 1)


def test_a_lock_excludes_the_gates_of_other_processes(file: Path) -> None:
    gate, other = Gate(file, "boot-1"), os.open(file, os.O_RDWR)
    try:
        with gate.locked(), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(other)


def test_an_era_is_every_process_s_and_no_other_boot_s(file: Path) -> None:
    gate = Gate(file, "boot-1")
    assert gate.era == 0

    gate.begin_era()
    gate.begin_era()

    assert (Gate(file, "boot-1").era, gate.holding) == (2, (b"", 0))
    assert Gate(file, "boot-2").era == 0


def test_no_version_is_held_before_one_is_set_and_after_every_boot(file: Path) -> None:
    gate = Gate(file, "boot-1")
    assert gate.holding == (b"", 0)
    gate.hold("step-1")

    assert Gate(file, "boot-1").holding == (b"step-1", 1)
    assert Gate(file, "boot-2").holding == (b"", 0)


def test_changes_are_counted_and_repeats_are_not(file: Path) -> None:
    gate = Gate(file, "boot-1")
    longest = "v" * 128

    for version in ("step-1", "step-1", longest, "step-1", "step-1"):
        gate.hold(version)
        assert gate.holding.version == version.encode()

    assert gate.holding.change == 3
    assert not gate.is_open
    assert gate.totals() == (0, 0)


def test_a_new_version_is_not_written_over_the_one_that_counts(file: Path) -> None:
    gate = Gate(file, "boot-1")
    gate.hold("step-1")
    before = file.read_bytes()
    at = before.index(b"step-1")

    gate.hold("other2")

    after = file.read_bytes()
    assert after[at : at + 6] == b"step-1"
    assert b"other2" in after


async def test_other_processes_see_the_flag_and_add_to_the_counts(file: Path) -> None:
    gate = Gate(file, "boot-1")
    gate.hold("step-1")
    gate.open()
    script = (
        "import pathlib, sys; from rlfleet_engine.gate.gate import Gate\n"
        f"gate = Gate(pathlib.Path({str(file)!r}), 'boot-1')\n"
        "with gate.passing():\n"
        "    print(gate.is_open, gate.holding, flush=True)\n"
        "    sys.stdin.readline(); gate.hold('step-2'); gate.close()\n"
    )
    other = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": "sidecar"},
    )
    assert other.stdout is not None
    told = await other.stdout.readline()
    assert told == b"True EngineVersion(version=b'step-1', change=1)\n"

    with gate.passing():
        assert gate.totals() == (0, 2)
    await other.communicate(b"\n")

    assert not gate.is_open
    assert gate.holding == (b"step-2", 2)
    assert gate.totals() == (0, 0)


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGTERM"])
async def test_what_a_process_that_died_was_answering_is_counted_no_longer(
    file: Path, signal: str
) -> None:
    gate = Gate(file, "boot-1")
    script = (
        "import pathlib, os, signal; from rlfleet_engine.gate.gate import Gate\n"
        f"gate = Gate(pathlib.Path({str(file)!r}), 'boot-1')\n"
        "gate.count(3); print(gate.totals(), flush=True)\n"
        f"os.kill(os.getpid(), signal.{signal})\n"
    )
    other = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        stdout=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": "sidecar"},
    )
    assert other.stdout is not None
    assert await other.stdout.readline() == b"(0, 3)\n"
    await other.wait()

    assert gate.totals() == (0, 0)
    with gate.passing():
        assert gate.totals() == (0, 1)


async def test_all_waiting_requests_pass_when_it_opens(file: Path) -> None:
    gate = Gate(file, "boot-1")
    waiting = [asyncio.create_task(gate.opened()) for _request in range(50)]
    await asyncio.sleep(0.02)
    assert gate.totals() == (50, 0)

    gate.open()

    async with asyncio.timeout(30):
        await asyncio.gather(*waiting)
    assert gate.totals() == (0, 0)


async def test_a_cancelled_waiter_does_not_cancel_the_others(file: Path) -> None:
    gate = Gate(file, "boot-1")
    poller, other = (asyncio.create_task(gate.opened()) for _request in range(2))
    await asyncio.sleep(0.02)

    poller.cancel()
    await asyncio.sleep(0.02)
    assert gate.totals() == (1, 0)
    gate.open()

    async with asyncio.timeout(30):
        await other


def test_more_processes_than_slots_is_an_error_not_a_wrong_count(file: Path) -> None:
    gate = Gate(file, "boot-1")
    data = bytearray(file.read_bytes())
    for offset in range(384, len(data), 20):
        data[offset : offset + 4] = (1).to_bytes(4, "little")
    file.write_bytes(data)

    with pytest.raises(RuntimeError, match="no free slot"):
        Gate(file, "boot-1")
    assert gate.boot == "boot-1"
