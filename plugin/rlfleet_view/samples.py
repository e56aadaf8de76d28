"""Metrics as Prometheus reads them: the lines with values, all that `top` and the page need.

Their library is as large as the plugin and takes long to import; a test compares the two.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*$")
_LABEL = re.compile(r'([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ESCAPED = {"n": "\n"}


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One value."""

    name: str
    labels: Mapping[str, str]
    value: float


def parsed(text: str) -> Iterator[MetricSample]:
    """Yield the samples of a page of metrics; what is none is passed over."""
    for line in text.splitlines():
        found = None if line.startswith("#") else _LINE.match(line)
        if found is None:
            continue
        labels = {name: _plain(value) for name, value in _LABEL.findall(found[2] or "")}
        try:
            yield MetricSample(found[1], labels, float(found[3]))
        except ValueError:
            continue


def _plain(value: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPED.get(found[1], found[1]), value)
