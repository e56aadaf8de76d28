"""The node seen from the host: its namespaces, its link, its end.

One process holds everything: `unshare`, whose child is the supervisor, process 1
inside. What the host itself keeps of a node is a veth link with two routes and a
cgroup; `end` removes each of them and is safe to repeat after any interruption.
"""

import contextlib
import ipaddress
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from dev import cache
from dev.node import layout
from dev.steps import StepFailed

PATIENCE_S = 20.0


@dataclass(frozen=True)
class Holder:
    """The process that holds the namespaces.

    Its start time distinguishes it from a later process with the same pid.
    """

    pid: int
    started: str
    cache: str

    def inside(self, *argv: str) -> list[str]:
        """Return a command line that runs with the node's files and network."""
        return ["nsenter", f"--target={self.pid}", "--mount", "--net", "--", *argv]


def current() -> Holder | None:
    """Return the running node of our cache, or None."""
    holder = _on_this_machine()
    return holder if holder and holder.cache == str(cache.root()) else None


def _on_this_machine() -> Holder | None:
    try:
        holder = Holder(**json.loads(layout.holder_file().read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return holder if _start_time(holder.pid) == holder.started else None


def start(plan: dict[str, object]) -> Holder:
    """Start a node that runs the plan."""
    _make_cgroups()
    kinds = ["--net", "--mount", "--ipc", "--uts", "--pid"]
    argv = ["unshare", *kinds, "--fork", "--kill-child", "--mount-proc"]
    argv += [sys.executable, "-m", "dev.node.supervisor"]
    reading, writing = os.pipe()
    with (layout.logs() / "supervisor.log").open("wb") as log, os.fdopen(writing, "w") as plans:
        process = subprocess.Popen(
            argv,
            cwd=cache.REPOSITORY,
            stdin=reading,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        os.close(reading)
        holder = Holder(process.pid, _start_time(process.pid), str(cache.root()))
        layout.holder_file().write_text(json.dumps(asdict(holder)))
        _link(holder)
        plans.write(f"{json.dumps(plan)}\n")
    return holder


def end() -> bool:
    """End the node and remove everything but the images; return whether there was one."""
    holder = current()
    if holder:
        _kill(holder)
    if not _on_this_machine():
        # An open connection can keep link and routes for a minute.
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "delete", layout.HOST_LINK)
        _remove_cgroups()
        layout.holder_file().unlink(missing_ok=True)
    shutil.rmtree(layout.state(), ignore_errors=True)
    layout.kubeconfig().unlink(missing_ok=True)
    return holder is not None


def _kill(holder: Holder) -> None:
    """Kill process 1 inside, and wait for it: it is gone after every other one."""
    inside = [pid for pid in _pids() if _stat(pid)[1:2] == [str(holder.pid)]]
    watches = [os.pidfd_open(pid) for pid in (*inside, holder.pid)]
    for pid in inside or [holder.pid]:
        os.kill(pid, signal.SIGKILL)
    for watch in watches:
        select.select([watch], [], [], PATIENCE_S)
        os.close(watch)


def _link(holder: Holder) -> None:
    """Connect host and node, and route pods and services through the node."""
    own, deadline = Path("/proc/self/ns/net").readlink(), time.monotonic() + PATIENCE_S
    while Path(f"/proc/{holder.pid}/ns/net").readlink() == own:
        if time.monotonic() > deadline:
            raise StepFailed(f"no new namespaces: see {layout.logs() / 'supervisor.log'}")
        time.sleep(0.01)
    peer = ["peer", "name", layout.NODE_LINK, "netns", str(holder.pid)]
    _ip("link", "add", layout.HOST_LINK, "type", "veth", *peer)
    _ip("address", "add", f"{layout.HOST_ADDRESS}/{layout.LINK_PREFIX}", "dev", layout.HOST_LINK)
    _ip("link", "set", layout.HOST_LINK, "up")
    for target in (layout.POD_RANGE, layout.SERVICE_RANGE):
        _ip("route", "add", target, "via", layout.NODE_ADDRESS)


def refuse_others() -> None:
    """Raise when our addresses are taken: by the node of another cache, or by anything else."""
    if (holder := _on_this_machine()) and not current():
        raise StepFailed(
            f"a node of another cache is up: `make cluster-down RLFLEET_CACHE={holder.cache}`"
        )
    wanted = [layout.POD_RANGE, layout.SERVICE_RANGE, f"{layout.NODE_ADDRESS}/32"]
    for route in json.loads(_ip("-json", "route", "show")):
        if route["dst"] == "default" or route.get("dev") == layout.HOST_LINK:
            continue
        taken = ipaddress.ip_network(route["dst"])
        if any(ipaddress.ip_network(target).overlaps(taken) for target in wanted):
            raise StepFailed(
                f"this machine routes {taken} to {route.get('dev')}, which our cluster would take: "
                "use the cluster that is there with CLUSTER=existing"
            )


def _make_cgroups() -> None:
    for hierarchy in _hierarchies():
        own = hierarchy / layout.CGROUP
        own.mkdir(exist_ok=True)
        # Version 2 only: children get no controller that the parent does not pass on.
        for group in (hierarchy, own):
            for controller in ("cpu", "cpuset", "memory", "pids", "io"):
                with contextlib.suppress(OSError):
                    (group / "cgroup.subtree_control").write_text(f"+{controller}")


def _remove_cgroups() -> None:
    deadline = time.monotonic() + PATIENCE_S
    for hierarchy in _hierarchies():
        own = hierarchy / layout.CGROUP
        while own.exists() and time.monotonic() < deadline:
            groups = [path for path in own.rglob("*") if path.is_dir()]
            for group in sorted(groups, reverse=True):
                with contextlib.suppress(OSError):
                    group.rmdir()
            with contextlib.suppress(OSError):
                own.rmdir()


def _hierarchies() -> list[Path]:
    """Return the root of every cgroup hierarchy: version 2 has one, version 1 many."""
    if (layout.CGROUP_ROOT / "cgroup.controllers").exists():
        return [layout.CGROUP_ROOT]
    marks = ("release_agent", "cgroup.controllers")
    folders = [path for path in layout.CGROUP_ROOT.iterdir() if not path.is_symlink()]
    return [path for path in folders if any((path / mark).exists() for mark in marks)]


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _stat(pid: int) -> list[str]:
    """Return a process's state, parent and so on, as /proc/PID/stat has them."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _start_time(pid: int) -> str:
    """Return when a process started, in clock ticks, or nothing if it is gone or a zombie."""
    fields = _stat(pid)
    return fields[19] if fields and fields[0] != "Z" else ""


def _ip(*argv: str) -> str:
    return subprocess.run(["ip", *argv], check=True, capture_output=True, text=True).stdout
