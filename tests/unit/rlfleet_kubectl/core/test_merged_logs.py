"""Log lines of several containers as one story."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rlfleet_kubectl.core import merged_logs
from rlfleet_kubectl.errors import PluginError
from rlfleet_view.fleet import moment
from tests.unit.rlfleet_view.recordings import fleet, with_rollout, with_status

AT = "2026-01-02T03:04:"


def ours(at: str, message: str, **fields: Any) -> str:
    line = {"time": "not read", "level": "INFO", "logger": "x", "message": message, **fields}
    return f"{AT}{at}Z {json.dumps(line)}\n"


MINE = {"namespace": "rl", "fleet": "qwen"}
SIDECAR = (
    ours("05.006000001", "Command succeeded", **MINE, worker="qwen-0", verb="Reload")
    + f"{AT}07Z Traceback (most recent call last):\n  without a time\n"
)
ENGINE = f"""\
{AT}04.5Z INFO 01-02 [api_server.py] Started
{AT}06.25Z {{"not": "ours"}}
"""
OPERATOR = (
    ours("05", "Rollout started", **MINE, rollout=3)
    + ours("05", "Rollout started", **MINE | {"fleet": "other"}, rollout=9)
    + ours("05", "Acquired the Lease")
)


def story(until: datetime | None = None) -> list[str]:
    operator = merged_logs.of_fleet(merged_logs.parsed("operator", OPERATOR), fleet("synced"))
    sidecar, engine = (
        merged_logs.parsed(n, t)
        for n, t in (("qwen-0/sidecar", SIDECAR), ("qwen-0/engine", ENGINE))
    )
    lines = merged_logs.merged([operator, sidecar, engine], until)
    return [merged_logs.rendered(line, 14).plain for line in lines]


def test_lines_are_merged_by_time_and_say_where_they_come_from() -> None:
    assert story() == [
        "03:04:04.500  qwen-0/engine   INFO     [api_server.py] Started",
        "03:04:05.000  operator        INFO     Rollout started  rollout=3",
        "03:04:05.006  qwen-0/sidecar  INFO     Command succeeded  verb=Reload",
        '03:04:06.250  qwen-0/engine   {"not": "ours"}',
        "03:04:07.000  qwen-0/sidecar  Traceback (most recent call last):",
        "03:04:07.000  qwen-0/sidecar    without a time",
    ]


def test_lines_after_the_end_are_left_out() -> None:
    assert len(story(datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC))) == 3


def test_a_rollout_s_lines_end_shortly_after_it() -> None:
    done = merged_logs.chosen(fleet("synced"), None)
    begin, end = merged_logs.span(done)

    assert done.seconds is not None
    assert begin == moment(done.started_at)
    assert end == begin + timedelta(seconds=done.seconds) + merged_logs.AFTER
    running = with_rollout(fleet("canary-hold"), seconds=None)
    assert merged_logs.span(merged_logs.chosen(running, None))[1] is None


def test_a_rollout_is_chosen_by_its_id() -> None:
    assert merged_logs.chosen(fleet("synced"), 7).to == "step-2"
    with pytest.raises(PluginError, match=r"rollout 99 is not recorded \(recorded: 11, 10, 9"):
        merged_logs.chosen(fleet("synced"), 99)
    with pytest.raises(PluginError, match="recorded: none"):
        merged_logs.chosen(with_status(fleet("synced"), rollout=None, history=[]), None)


def test_a_line_for_a_program_keeps_its_fields() -> None:
    first = next(merged_logs.parsed("operator", OPERATOR))

    assert '"rollout": 3' in merged_logs.as_json(first)
    assert '"source": "operator"' in merged_logs.as_json(first)
