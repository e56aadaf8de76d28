"""Configs are parsed in a process of its own, by a transformers that is at hand or is not.

The transformers here is a few lines; the real one made what test_config_rules.py compares.
"""

import time
from pathlib import Path

import pytest

from rlfleet_sidecar.checkpoints import config_parser
from rlfleet_sidecar.checkpoints.config_check import ConfigCheck

MODEL = {"model_type": "toy", "layers": 2}
TRANSFORMERS = """
import sys, time, pathlib
from pathlib import Path
assert sys.modules["torch"] is None
with open({log!r}, "a") as file:
    file.write("parsed\\n")

class Toy:
    def __init__(self, stated):
        self.stated = stated
    @classmethod
    def from_dict(cls, stated):
        {acts}
        return cls(stated)
    def to_dict(self):
        return {{"tied": True}} | self.stated | {{"model_type": "toy"}}

CONFIG_MAPPING = {{"toy": Toy, "toy_vl": Toy}}
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def transformers(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a package of that name where the parent and the child look."""
    file = tmp_path / "site" / "transformers" / "__init__.py"
    file.parent.mkdir(parents=True)
    file.write_text(TRANSFORMERS.format(log=str(log), acts="pass"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return file


def soon() -> float:
    return time.monotonic() + 20


def test_a_default_that_one_leaves_out_is_filled_in_before_they_are_compared(
    transformers: Path,
) -> None:
    found = MODEL | {"tied": False}

    told = ConfigCheck().objection(MODEL, found, soon())

    assert told == (
        "tied is False, expected True; the engine computes with the base model's: train with it,"
        " correct this file if you did, or serve a base model that has the version's"
    )


@pytest.mark.usefixtures("transformers")
def test_a_type_that_an_older_transformers_wrote_with_a_hyphen_is_the_same() -> None:
    model, found = MODEL | {"model_type": "toy_vl"}, MODEL | {"model_type": "toy-vl"}

    assert ConfigCheck().objection(model, found | {"tied": True}, soon()) is None


def test_the_same_files_are_parsed_once_and_equal_ones_never(transformers: Path, log: Path) -> None:
    agreement = ConfigCheck()

    assert agreement.objection(MODEL, MODEL | {"use_cache": False}, soon()) is None
    assert not log.exists()
    for _ in range(2):
        assert agreement.objection(MODEL, MODEL | {"tied": True}, soon()) is None
    assert log.read_text().count("parsed") == 1


def test_code_of_a_checkpoint_is_never_handed_on(transformers: Path) -> None:
    code = {"auto_map": {"AutoConfig": "configuration_x.X"}}

    parsed = config_parser.parsed([MODEL | code], 20)

    assert parsed == [MODEL | {"tied": True}]


@pytest.mark.parametrize("acts", ["raise ValueError('no')", "time.sleep(60)", "sys.exit(0)"])
def test_what_cannot_be_parsed_is_compared_as_it_stands(transformers: Path, acts: str) -> None:
    text = transformers.read_text().replace("        pass", f"        {acts}")
    transformers.write_text(text)
    deadline = time.monotonic() + (0.5 if "sleep" in acts else 20)

    assert ConfigCheck().objection(MODEL, MODEL | {"tied": False}, deadline) is None
    why = ConfigCheck().objection(MODEL, MODEL | {"layers": 3}, time.monotonic()) or ""
    assert why.startswith("layers is 3, expected 2; ")


def test_without_transformers_the_files_are_compared_as_they_stand() -> None:
    assert config_parser.parsed([MODEL], 20) is None
    assert ConfigCheck().objection(MODEL, MODEL | {"tied": False}, soon()) is None
