"""kstatus, which Flux, Helm and kubectl use, and Argo CD's own Lua, about recorded fleets."""

from typing import Any

import pytest

from dev import steps
from dev.gitops import judge
from tests import recordings
from tests.recordings import VERDICTS

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def judged() -> dict[str, Any]:
    """What each tool makes of each recorded fleet."""
    steps.run(judge.build_steps())
    return judge.judged({name: recordings.fleet(name) for name in recordings.NAMES})


@pytest.mark.parametrize("name", recordings.NAMES)
def test_kstatus_is_what_the_state_deserves(judged: dict[str, Any], name: str) -> None:
    found, expected = judged[name], VERDICTS[name]

    assert (found["kstatus"], found["flux"]) == (expected["kstatus"], expected["kstatus"])
    if found["kstatus"] == "Failed":
        assert expected["says"].endswith(f": {found['message']}")


@pytest.mark.parametrize("name", recordings.NAMES)
def test_the_lua_of_argo_cd_says_what_lua_51_says(judged: dict[str, Any], name: str) -> None:
    found, expected = judged[name], VERDICTS[name]

    assert found["health"] == {"status": expected["health"], "message": expected["says"]}
    assert sorted(found["actions"]) == expected["actions"]
