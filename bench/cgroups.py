"""Groups of processes that share the CPU as containers do."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_MOST = 262_144
"""The largest share: what else runs on the machine hardly counts beside it."""


@contextmanager
def groups(shares: Mapping[str, int]) -> Iterator[dict[str, Path]]:
    """Yield the files into which a process's id is written, of groups with these CPU shares.

    They lie in one that outweighs the rest of the machine. Shares are those that a kubelet sets:
    1024 for one CPU that is requested.
    """
    is_old = (_ROOT / "cpu").is_dir()
    parent = _ROOT / "cpu" / "rlfleet-bench" if is_old else _ROOT / "rlfleet-bench"
    parent.mkdir()
    try:
        if not is_old:
            (_ROOT / "cgroup.subtree_control").write_text("+cpu")
            (parent / "cgroup.subtree_control").write_text("+cpu")
        _share(parent, _MOST, is_old=is_old)
        for name, share in shares.items():
            (parent / name).mkdir()
            _share(parent / name, share, is_old=is_old)
        yield {name: parent / name / "cgroup.procs" for name in shares}
    finally:
        for group in (*parent.glob("*/"), parent):
            group.rmdir()


def _share(group: Path, shares: int, *, is_old: bool) -> None:
    if is_old:
        (group / "cpu.shares").write_text(str(shares))
    else:
        # As a kubelet converts one into the other.
        (group / "cpu.weight").write_text(str(1 + (shares - 2) * 9999 // (_MOST - 2)))
