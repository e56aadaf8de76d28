"""As many threads as the container has CPUs, by its cgroups and its affinity."""

import os
from pathlib import Path

import pytest

from rlfleet_sidecar.staging import cpus


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/pod/one", {"cpu.max": "max 100000", "pod/one/cpu.max": "50000 100000"}, 0.5),
        ("0::/pod/one", {"pod/cpu.max": "200000 100000", "pod/one/cpu.max": "max 100000"}, 2),
        (
            "4:cpu,cpuacct:/pod",
            {"cpu/pod/cpu.cfs_quota_us": "300000", "cpu/pod/cpu.cfs_period_us": "100000"},
            3,
        ),
        # A container sees its own cgroup as the root, though its path is the host's.
        (
            "4:cpu:/kubepods/pod7",
            {"cpu/cpu.cfs_quota_us": "25000", "cpu/cpu.cfs_period_us": "100000"},
            0.25,
        ),
        (
            "4:cpu:/",
            {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"},
            float("inf"),
        ),
        ("4:memory:/", {"cpu/cpu.cfs_quota_us": "25000"}, float("inf")),
        ("", {}, float("inf")),
    ],
)
def test_a_quota_is_found_in_either_kind_of_cgroups(
    tmp_path: Path, own: str, files: dict[str, str], expected: float
) -> None:
    write(tmp_path, {"own": own})
    write(tmp_path / "cgroups", files)

    assert cpus.quota(tmp_path / "cgroups", tmp_path / "own") == expected


def test_a_process_that_may_use_one_cpu_gets_one_thread() -> None:
    before = os.sched_getaffinity(0)
    assert 1 <= cpus.threads() <= min(8, len(before))
    try:
        os.sched_setaffinity(0, {min(before)})
        assert cpus.threads() == 1
    finally:
        os.sched_setaffinity(0, before)
