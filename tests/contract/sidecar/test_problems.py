"""No code of the contract is dead: each is seen by a test or named here with its reason."""

import re
from pathlib import Path

from rlfleet_contract.worker.problems import Code

UNSEEN: dict[Code, str] = {}
SUITES = ("tests/contract", "tests/unit/rlfleet_sidecar", "tests/fakes")


def test_every_code_is_seen_by_a_test_or_named_here() -> None:
    root = Path(__file__).parents[3]
    text = "".join(
        path.read_text()
        for suite in SUITES
        for path in (root / suite).rglob("*.py")
        if path.name != Path(__file__).name
    )
    named = {code for code in Code if re.search(rf'Code\.{code.name}\b|"{code}"', text)}

    assert set(Code) - named == set(UNSEEN)
