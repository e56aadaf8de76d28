"""A preload takes memory only if node and container have it."""

from pathlib import Path

import pytest

from rlfleet_engine.reload.free_memory import FreeMemory, objection, of_group, of_node, read

GIB = 1024**3
MEMINFO = "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB\n"
STATISTICS = f"anon {GIB}\nactive_file {GIB}\ninactive_file {2 * GIB}\n"


@pytest.mark.parametrize(
    ("nbytes", "further", "available", "fits"),
    [
        (4 * GIB, 0, 5 * GIB, True),
        (4 * GIB, 0, 5 * GIB - 1, False),
        (4 * GIB, 4 * GIB, 9 * GIB, True),
        (4 * GIB, 4 * GIB, 9 * GIB - 1, False),
        (0, 0, GIB - 1, False),
    ],
)
def test_a_twentieth_of_the_limit_stays_free(
    nbytes: int, further: int, available: int, *, fits: bool
) -> None:
    why = objection(nbytes, further, FreeMemory(available, 20 * GIB))

    assert (why is None) is fits
    assert fits or str(available) in str(why)


def test_page_cache_counts_as_free() -> None:
    assert of_node(MEMINFO) == FreeMemory(8 * GIB, 16 * GIB)
    assert of_group(str(8 * GIB), str(6 * GIB), STATISTICS) == FreeMemory(5 * GIB, 8 * GIB)


def test_a_group_of_version_1_counts_what_is_below_it() -> None:
    statistics = f"active_file 0\ninactive_file 0\ntotal_active_file {GIB}\ntotal_inactive_file 0\n"

    assert of_group(str(8 * GIB), str(6 * GIB), statistics) == FreeMemory(3 * GIB, 8 * GIB)


@pytest.mark.parametrize("limit", ["max", "9223372036854771712", ""])
def test_a_group_without_a_limit_limits_nothing(limit: str) -> None:
    assert of_group(limit, "1", STATISTICS) is None


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_the_tighter_of_node_and_container_counts(tmp_path: Path) -> None:
    proc, group = tmp_path / "proc", tmp_path / "group"
    write(proc, meminfo=MEMINFO)

    assert read(proc, group) == FreeMemory(8 * GIB, 16 * GIB)

    write(
        group,
        memory__max=str(4 * GIB),
        memory__current=str(2 * GIB),
        memory__stat="active_file 0\ninactive_file 0\n",
    )
    assert read(proc, group) == FreeMemory(2 * GIB, 4 * GIB)

    write(
        group / "memory",
        memory__limit_in_bytes=str(3 * GIB),
        memory__usage_in_bytes=str(2 * GIB),
        memory__stat="total_active_file 0\ntotal_inactive_file 0\n",
    )
    assert read(proc, group) == FreeMemory(GIB, 3 * GIB)


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    write(tmp_path, meminfo="MemTotal: much\n")

    assert read(tmp_path, tmp_path) is None
