"""The queries of the Grafana dashboard, and what a Prometheus must return for them."""

import json
import math
from collections.abc import Iterator
from typing import Any

from dev import cache

BOARD = cache.REPOSITORY / "charts" / "rlfleet" / "dashboards" / "rlfleet.json"


def queries() -> Iterator[str]:
    """Yield the dashboard's queries as Grafana would send them for all fleets."""
    variables = {"$namespace": ".*", "$fleet": ".*", "$__rate_interval": "5m"}
    for panel in json.loads(BOARD.read_text())["panels"]:
        for target in panel["targets"]:
            text: str = target["expr"]
            for name, value in variables.items():
                text = text.replace(name, value)
            yield text


def has_data(found: list[dict[str, Any]]) -> bool:
    """Return whether a result has a number: a quantile without observations is NaN."""
    return any(not math.isnan(float(series["value"][1])) for series in found)
