"""Conditional writes to a bucket, on a server that compares generations as Google's does."""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlfleet.publish import Options, Publisher, PublishError
from tests.fakes.google_bucket import GoogleBucket, serving
from tests.unit.rlfleet.publish.states import model, stepped

RUN = "run-1"


@pytest.fixture
def google() -> Iterator[GoogleBucket]:
    with serving() as running:
        yield running


def publisher_to(google: GoogleBucket) -> Publisher:
    return Publisher("gs://weights/qwen", Options(run=RUN, store=google.options))


def latest(google: GoogleBucket) -> str:
    return google.objects["qwen/latest"][0].decode()


def test_the_pointer_moves_in_a_store_that_compares_generations(google: GoogleBucket) -> None:
    with publisher_to(google) as publisher:
        for seed in range(3):
            found = publisher.publish(stepped(model(), seed))
            assert latest(google) == f"{RUN}/{found.name}"


def test_a_pointer_that_another_trainer_moved_in_between_is_not_replaced(
    google: GoogleBucket,
) -> None:
    with publisher_to(google) as publisher:
        publisher.publish(model())
        google.overtaken_by["qwen/latest"] = b"run-2/weight_v000009"
        with pytest.raises(PublishError, match="another trainer moved latest"):
            publisher.publish(model())

    assert latest(google) == "run-2/weight_v000009"


@pytest.mark.parametrize("name", [".claimed", "model.safetensors.index.json", "latest"])
def test_a_write_that_was_done_but_answered_with_an_error_is_no_other_trainer_s(
    google: GoogleBucket, name: str
) -> None:
    """obstore repeats it, and the repeated one meets the first."""
    with publisher_to(google) as publisher:
        publisher.publish(model())
        google.lost.add(name)
        found = publisher.publish(stepped(model(), 1))

    assert (google.lost, found.version, found.is_full) == (set(), 2, False)
    assert latest(google) == f"{RUN}/{found.name}"


@pytest.mark.parametrize("name", [".claimed", "model.safetensors.index.json", "latest"])
def test_a_write_whose_connection_was_reset_is_repeated(google: GoogleBucket, name: str) -> None:
    """obstore repeats no conditional write then."""
    with publisher_to(google) as publisher:
        publisher.publish(model())
        google.cut.add(name)
        found = publisher.publish(stepped(model(), 1))

    assert (google.cut, found.version, found.is_full) == (set(), 2, False)
    assert latest(google) == f"{RUN}/{found.name}"


def test_without_obstore_the_error_names_a_requirement_of_the_project(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    extras = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())
    (needed,) = extras["project"]["optional-dependencies"]["bucket"]

    with pytest.raises(PublishError, match=re.escape(f"pip install '{needed}'")):
        Publisher("s3://weights/qwen")
