"""The findings of a benchmark: statistics, the form of latest.json, and its table.

Pure, so that a figure means the same in the file, the table and the plots. Times on a
shared machine are noisy: medians, and ratios only of what one run measured.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

SCHEMA = 1
Figures = dict[str, Any]
"""Headline figures by name: a number, or numbers by number of workers."""

TITLES = {
    "window_over_bare_reload": "pause window / vLLM's bare reload, model of about 1 GiB",
    "replies_over_bare_reload": "the same until replies are sent, which wait for the proof",
    "window_minus_bare_reload_ms": "pause window minus vLLM's bare reload, tiny model (ms)",
    "pause_window_by_strategy_ms": "a worker's pause window, tiny model (ms)",
    "barrier_over_rolling": "pause window with Barrier / with Rolling, 2 workers of about 1 GiB",
    "barrier_replies_over_rolling": "the same until replies are sent",
    "rollout_throughput_ratio": "tokens per second through six rollouts in a row / before them",
    "prepare_over_copy": "prepare / plain copy of the same files, about 1 GiB, free machine",
    "prepare_over_copy_busy": "the same beside work that keeps every core busy",
    "prepare_cpu_over_copy": "CPU time of a prepare / of a plain copy",
    "prepare_throughput_ratio": "tokens per second while a worker prepares about 1 GiB / before it",
    "copy_throughput_ratio": "the same while a plain copy of those files is made instead",
    "prepare_over_copy_engine": "prepare / plain copy of the same files, both beside that engine",
    "delta_apply_gib_s": "a delta of 2 % applied and its checksums compared, one core (GiB/s)",
    "delta_apply_over_copy": "its CPU time / that of a copy of the same files",
    "delta_read_ratio": "bytes that a worker reads of that delta / of a full version",
    "prepare_over_plain_download": "a prepare from an S3 server / a plain download by its client",
    "store_prepare_peak_mib": "memory of the process that does it, at its peak (MiB)",
    "fanout_over_one_link": "simulated: a version for 1,000 workers / the time of one link",
    "fanout_copies": "simulated: copies of it out of the store",
    "fanout_wrong_pieces": "simulated: pieces with wrong bytes that a worker kept",
    "fanout_simulation_error": "the simulation's error for 16 real sidecars with slow links",
    "extension_throughput_ratio": "requests per second with the extension / without it",
    "extension_latency_p50_ratio": "median latency of requests with the extension / without it",
    "patch_to_proved_s": "patch to every worker proved, real vLLM (s)",
    "patch_to_proved_overhead_s": "the same, minus the workers' own pause windows (s)",
    "control_time_s": "patch to every worker proved, fake engines, maxUnavailable 25% (s)",
    "control_time_all_at_once_s": "the same, maxUnavailable 100% (s)",
    "operator_cpu_s": "operator's CPU time for one such rollout at 25% (s)",
    "operator_rss_mib": "operator's memory after the rollouts (MiB)",
    "api_writes": "operator's writes to the API for one rollout at 25%",
    "api_sent_kib": "what the operator sent with them (KiB)",
    "fleet_object_kib": "the fleet object, as JSON, by workers (KiB)",
    "status_writes_per_s_max": "most status writes in any second of a rollout",
    "status_writes_at_rest": "status writes in 30 s at rest",
    "restart_baseline_s": "the same change by a Deployment's rollout, 2 workers (s)",
    "restart_ratio": "that, over rlfleet's patch to proved with 2 workers",
}
"""Every figure that latest.json may hold, in the order in which people read them."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one part of the benchmark found."""

    figures: Figures
    detail: dict[str, Any]
    """The samples that the figures were made from."""
    notes: Sequence[str] = field(default_factory=tuple)
    """What a reader has to know before comparing."""


def summary(values: Iterable[float]) -> dict[str, float]:
    """Return minimum, median and maximum, and how many there were."""
    found = sorted(values)
    if not found:
        raise ValueError("a summary needs at least one sample")
    return {
        "min": rounded(found[0]),
        "median": rounded(median(found)),
        "max": rounded(found[-1]),
        "samples": len(found),
    }


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a text, each in one line."""
    return [" ".join(one.split()) for one in text.strip().split("\n\n")]


def rounded(value: float) -> float:
    """Keep four significant digits: the rest is noise."""
    return float(f"{value:.4g}")


def most_within(moments: Iterable[float], span_s: float) -> int:
    """Return how many of the moments lie in the fullest window of this length."""
    ordered, first, most = sorted(moments), 0, 0
    for place, moment in enumerate(ordered):
        while moment - ordered[first] >= span_s:
            first += 1
        most = max(most, place - first + 1)
    return most


def merged(
    before: Mapping[str, Any],
    name: str,
    part: Part,
    about: Mapping[str, Any],
    order: Sequence[str],
) -> dict[str, Any]:
    """Return latest.json with one part's findings in the place of its older ones.

    ``about`` is the run: date, commit, seconds, machine. Ratios across parts are computed again.
    A part that is not in ``order`` is no longer measured, and is removed; so are figures of other
    parts that have no title any more.
    """
    unknown = part.figures.keys() - TITLES.keys()
    if unknown:
        raise ValueError(f"figures without a title: {sorted(unknown)}")
    parts = dict(before.get("parts") or {})
    parts[name] = {**about, "figures": part.figures, "detail": part.detail, "notes": [*part.notes]}
    parts = {key: parts[key] for key in order if key in parts}
    found: Figures = {}
    for one in parts.values():
        found |= {key: _joined(found.get(key), value) for key, value in one["figures"].items()}
    found |= _across(found)
    return {
        "schema": SCHEMA,
        "figures": {key: found[key] for key in TITLES if key in found},
        "parts": parts,
    }


def _joined(known: Any, more: Any) -> Any:
    """Merge figures by number of workers with those of other fleets."""
    if not isinstance(known, Mapping) or not isinstance(more, Mapping):
        return more
    both = {**known, **more}
    return (
        both if not all(key.isdecimal() for key in both) else dict(sorted(both.items(), key=_size))
    )


def _size(item: tuple[str, Any]) -> int:
    return int(item[0])


def _across(found: Figures) -> Figures:
    ours = (found.get("patch_to_proved_s") or {}).get("2")
    theirs = found.get("restart_baseline_s")
    return {"restart_ratio": rounded(theirs / ours)} if ours and theirs else {}


def table(latest: Mapping[str, Any]) -> str:
    """Return latest.json as Markdown."""
    lines = ["# Benchmark results", "", "| figure | |", "|---|---|"]
    for name, value in latest["figures"].items():
        lines.append(f"| `{name}`: {TITLES[name]} | {_text(value)} |")
    for name, part in latest["parts"].items():
        lines += ["", f"## {name}", "", _run_of(part), ""]
        lines += [f"- {note}" for note in part["notes"]]
        for title, rows in (part["detail"].get("tables") or {}).items():
            lines += ["", f"### {title}", "", *_rows(rows)]
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {one:g}" for key, one in value.items())
    return f"{value:g}"


def _run_of(part: Mapping[str, Any]) -> str:
    machine = part["machine"]
    return (
        f"{part['date']}, commit {part['commit']}, {part['seconds']:.0f} s, load before it"
        f" {part['load_before']:g}, on {machine['cores']}"
        f" cores ({_processor(machine)}), {machine['memory_gib']:g} GiB, Linux"
        f" {machine['kernel']}, Python {machine['python']}{_page_cache(part)}."
    )


def _processor(machine: Mapping[str, Any]) -> str:
    flags, name = machine.get("flags"), str(machine["processor"])
    return name if flags is None else f"{name}; {' '.join(flags) or 'no SHA-NI, AVX-512, AMX'}"


def _page_cache(part: Mapping[str, Any]) -> str:
    """Return what threw files out of the page cache, and how many pages were read again."""
    if "refaults" not in part:
        return ""
    damon = ", ".join(part["machine"].get("damon") or ()) or "none"
    return f"; DAMON {damon}, {part['refaults']} pages of files read again"


def _rows(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    columns = list(rows[0])
    head = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return head + ["| " + " | ".join(str(row.get(c, "")) for c in columns) + " |" for row in rows]
