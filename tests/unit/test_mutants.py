"""Every small defect can still be put in; ``make mutants`` sees whether it is caught."""

from pathlib import Path

import pytest

from tests.mutants.catalogue import ROOT, Mutant, apply, mutants

ENOUGH = 40


def test_there_are_enough_of_them_and_each_says_what_it_breaks() -> None:
    found = mutants()

    assert len(found) >= ENOUGH
    assert len({mutant.breaks for mutant in found}) == len(found)


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_a_defect_still_applies_and_its_tests_exist(mutant: Mutant) -> None:
    complaint = apply(mutant, ROOT, "--check")

    assert not complaint, "what it breaks was rewritten: make the patch anew, or delete it"
    assert [path for path in mutant.tests if not (ROOT / path).exists()] == []


def test_a_patch_that_does_not_apply_is_told(tmp_path: Path) -> None:
    assert "No such file" in apply(mutants()[0], tmp_path, "--check")
