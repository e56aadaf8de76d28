"""Sidecars that share a version over HTTPS."""

import asyncio
import logging
from pathlib import Path

import pytest

from tests.certificates import Authority, mounted
from tests.contract.sharing.fleet import from_store, running

NAME = "qwen-workers.rl.svc"


@pytest.mark.parametrize(("name", "shares"), [(NAME, True), ("another.rl.svc", False)])
async def test_sidecars_share_a_version_with_those_of_their_fleet_alone(
    tmp_path: Path,
    model: Path,
    weights: Path,
    impatient: None,
    caplog: pytest.LogCaptureFixture,
    name: str,
    shares: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """With another name each reads the store, and no token is sent."""
    caplog.set_level(logging.INFO)
    mount = mounted(tmp_path / "tls", Authority().secret(NAME, "127.0.0.1"))
    tls = {"tls_dir": mount, "tls_name": name}
    async with running(2, tmp_path, model, weights, **tls) as fleet:
        plan = fleet.planned()
        reports = await asyncio.gather(*(fleet.prepare(n, one) for n, one in enumerate(plan)))

        assert len({report.prepared for report in reports}) == 1
        assert fleet.is_right(1)
        total = sum(stamp.size for stamp in fleet.stamps())
    read = sorted(from_store(caplog))
    assert read[-1] == total
    assert (read[0] < total) == shares
