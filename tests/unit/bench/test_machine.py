"""What is recorded of a machine, because it decides what a measurement means."""

import subprocess
import sys
from pathlib import Path

from bench.machine import damon, flags, refaults
from bench.one_pass import peak_mib


def test_instructions_that_matter_are_recorded_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nflags\t\t: fpu sha_ni mmx amx_bf16\n")

    assert flags(file) == ["sha_ni", "amx_bf16"]


def test_a_kernel_that_throws_the_page_cache_away_is_recorded(tmp_path: Path) -> None:
    scheme = tmp_path / "0" / "contexts" / "0" / "schemes" / "0"
    scheme.mkdir(parents=True)
    (scheme / "action").write_text("pageout\n")
    (tmp_path / "0" / "state").write_text("on\n")
    (tmp_path / "nr_kdamonds").write_text("1\n")

    assert damon(tmp_path) == ["pageout on"]
    assert damon(tmp_path / "absent") == []


def test_pages_that_were_read_again_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "vmstat"
    file.write_text("workingset_refault_anon 3\nworkingset_refault_file 1250\nother 7\n")

    assert refaults(file) == 1250
    file.write_text("nothing 1\n")
    assert refaults(file) == 0


def test_a_process_has_a_peak_of_its_own_not_its_parent_s() -> None:
    held = bytearray(b"\1") * (256 << 20)
    words = [sys.executable, "-c", "from bench.one_pass import peak_mib; print(peak_mib())"]

    child = float(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)

    assert peak_mib() > len(held) >> 20 > child
