"""Every small defect can still be put in; ``make mutants`` sees whether it is caught."""

from dataclasses import replace

import pytest

from tests.mutants.catalogue import ROOT, Mutant, broken, mutants

ENOUGH = 40


def test_there_are_enough_of_them_and_each_says_what_it_breaks() -> None:
    found = mutants()

    assert len(found) >= ENOUGH
    assert len({mutant.breaks for mutant in found}) == len(found)


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_a_defect_still_applies_and_its_tests_exist(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text()

    assert broken(mutant, text) != text
    assert [path for path in mutant.tests if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("text", ["", "a = 1\na = 1\n"])
def test_a_line_that_does_not_stand_there_once_is_an_error(text: str) -> None:
    mutant = replace(mutants()[0], edits=(("a = 1", "a = 2"),))

    with pytest.raises(ValueError, match=r"expected\s+once"):
        broken(mutant, text)
