"""What a trainer's request asks for, and whether it may."""

from typing import Any

import pytest

from rlfleet_contract.worker.report import Target
from rlfleet_operator.core.trainer.models import (
    Fault,
    Refusal,
    UpdateWeights,
    demand_free,
    owner_of_version,
    record_of,
    target_of,
    update_from,
    version_asked,
)
from tests import fleets

DEEP = {"weights": {"path": "/data/run/{version}/weight"}}
STORE = {"weights": {"source": {"url": "s3://b/run/{version}"}}}
SLASHED = {"weights": {"path": "/weights/{version}/"}}


@pytest.mark.parametrize(
    ("spec", "body", "version"),
    [
        ({}, {"version": "step-1"}, "step-1"),
        ({}, {"version": "base"}, "base"),
        ({}, {"weight_dir": "/weights/step-1"}, "step-1"),
        ({}, {"weight_dir": "/weights/step-1/"}, "step-1"),
        ({}, {"weight_dir": "", "version": "step-1"}, "step-1"),
        ({}, {"weight_dir": "/weights/step-1", "version": "step-1"}, "step-1"),
        (DEEP, {"weight_dir": "/data/run/step_7/weight"}, "step_7"),
        (STORE, {"weight_dir": "s3://b/run/step-7/"}, "step-7"),
        (SLASHED, {"weight_dir": "/weights/step-1"}, "step-1"),
        (SLASHED, {"weight_dir": "/weights/step-1/"}, "step-1"),
        ({"weights": None}, {"version": "base"}, "base"),
    ],
)
def test_a_version_is_named_by_itself_or_by_its_directory(
    spec: dict[str, Any], body: dict[str, Any], version: str
) -> None:
    assert version_asked(UpdateWeights(**body), fleets.fleet(spec)) == version


@pytest.mark.parametrize(
    ("body", "is_nothing"),
    [
        (b'{"weight_dir":null}', True),
        (b'{"weight_dir":""}', True),
        (b'{"weight_dir":null,"version":null}', True),
        (b'{"weight_dir":null,"timeout_s":30}', True),
        (b"{}", False),
        (b"", False),
        (b'{"version":null}', False),
        (b'{"version":"step-1","weight_dir":null}', False),
        (b'{"weight_dir":"/weights/step-1"}', False),
    ],
)
def test_a_request_with_a_null_directory_loads_nothing(body: bytes, *, is_nothing: bool) -> None:
    assert update_from(body).is_nothing is is_nothing


@pytest.mark.parametrize(
    ("spec", "body", "words"),
    [
        ({}, {}, "names no version"),
        ({}, {"weight_dir": None}, "names no version"),
        ({}, {"weight_dir": ""}, "names no version"),
        (
            {},
            {"version": "a", "weight_dir": "/weights/b"},
            "'a' differs from weight_dir's 'b'",
        ),
        ({}, {"version": ""}, "version '' is not a directory name"),
        ({}, {"version": "../up"}, "version '../up' is not a directory name"),
        ({}, {"version": ".hidden"}, "is not a directory name"),
        ({}, {"version": "a\n"}, "is not a directory name"),
        (
            {},
            {"weight_dir": "/weights/a/b"},
            "expected /weights/{version} with a version",
        ),
        ({}, {"weight_dir": "/weights/"}, ", expected /weights/{version} with"),
        ({}, {"weight_dir": "/weights"}, ", expected /weights/{version} with"),
        ({}, {"weight_dir": "/weights/../x"}, ", expected /weights/{version} with"),
        ({}, {"weight_dir": "/weights/.."}, "is not a directory name"),
        (DEEP, {"weight_dir": "/data/run/weight"}, ", expected /data/run/{version}/weight with"),
        (STORE, {"weight_dir": "s3://b/run/a/b"}, "expected s3://b/run/{version} with a version"),
        ({"weights": None}, {"version": "a"}, "set spec.weights.path"),
        ({"weights": None}, {"weight_dir": "/weights/a"}, "set spec.weights.path"),
    ],
)
def test_a_request_that_names_none_or_two_is_refused_by_its_field(
    spec: dict[str, Any], body: dict[str, Any], words: str
) -> None:
    with pytest.raises(Refusal) as refused:
        version_asked(UpdateWeights(**body), fleets.fleet(spec))

    assert refused.value.fault is Fault.INVALID_REQUEST
    assert words in refused.value.message


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"[]", "the body"),
        (b"{", "the body"),
        (b'{"version": 3}', "version"),
        (b'{"timeout_s": 0}', "timeout_s"),
        (b'{"weigth_dir": "x"}', "weigth_dir"),
    ],
)
def test_a_malformed_body_is_refused_by_its_field(body: bytes, field: str) -> None:
    with pytest.raises(Refusal) as refused:
        update_from(body)

    assert refused.value.message.startswith(f"{field}: ")


def test_no_body_is_an_empty_one() -> None:
    assert update_from(b"") == UpdateWeights()


def metadata(*managers: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    entries = [
        {"manager": who, "time": when, "fieldsV1": {"f:spec": fields}}
        for who, when, fields in managers
    ]
    return {"metadata": {"managedFields": entries}}


MINE: dict[str, Any] = {"f:weightVersion": {}}


@pytest.mark.parametrize(
    ("raw", "owner"),
    [
        ({"metadata": {}}, None),
        (metadata(), None),
        (metadata(("helm", "2026-01-01T00:00:00Z", {"f:replicas": {}})), None),
        (metadata(("flux", "2026-01-01T00:00:00Z", MINE)), "flux"),
        (
            metadata(
                ("argocd", "2026-01-02T00:00:00Z", MINE), ("kubectl", "2026-01-01T00:00:00Z", MINE)
            ),
            "argocd",
        ),
        ({"metadata": {"managedFields": [{"manager": "old", "subresource": "status"}]}}, None),
    ],
)
def test_the_owner_is_the_last_manager_of_the_field(raw: dict[str, Any], owner: str | None) -> None:
    assert owner_of_version(raw) == owner


FOLLOWS = {"path": "/weights/{version}", "follow": "Latest"}


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"weightVersion": "step-1"}, Fault.VERSION_OWNED),
        # The spec's owner may change its mind in between: the same version is no exception.
        ({"weightVersion": "step-2"}, Fault.VERSION_OWNED),
        ({"weightVersion": "step-1", "replicas": 0}, Fault.VERSION_OWNED),
        ({"rollout": {"dryRun": True}}, Fault.DRY_RUN),
        ({"replicas": 0}, Fault.NO_WORKERS),
        ({"weights": FOLLOWS}, Fault.VERSION_OWNED),
    ],
)
def test_what_a_trainer_may_not_change_is_refused(spec: dict[str, Any], fault: Fault) -> None:
    with pytest.raises(Refusal) as refused:
        demand_free(fleets.fleet(spec), metadata(), "step-2")

    assert refused.value.fault is fault
    assert "version step-2 rejected: " in refused.value.message


def test_a_fleet_without_a_version_is_free() -> None:
    demand_free(fleets.fleet({"replicas": 1}), metadata(), "step-2")


def test_a_record_is_bound_to_the_object_that_was_looked_at() -> None:
    seen = {"metadata": {"resourceVersion": "17", "uid": "f-1"}}

    assert record_of(seen, "step-2", 1e9) == {
        "metadata": {"resourceVersion": "17"},
        "status": {"trainerTarget": {"version": "step-2", "askedAt": "2001-09-09T01:46:40Z"}},
    }


def test_only_temporary_faults_are_retryable() -> None:
    # 5xx is what clients of today try again by themselves.
    assert all(fault.retryable == (fault.status >= 500) for fault in Fault)


FOLLOWED = {"followed": {"version": "step-3", "since": "2026-01-01T00:00:00Z"}}
TRAINERS = {"trainerTarget": {"version": "step-2", "askedAt": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize(
    ("spec", "status", "raw", "target"),
    [
        ({}, {}, metadata(), None),
        ({}, TRAINERS, metadata(), Target("step-2", "a trainer at the fleet API")),
        (
            {"weightVersion": "step-1"},
            TRAINERS,
            metadata(("flüx\n", "2026-01-01T00:00:00Z", MINE)),
            Target("step-1", "spec.weightVersion, written by fl?x?"),
        ),
        ({"weightVersion": "step-1"}, {}, metadata(), Target("step-1", "spec.weightVersion")),
        (
            {"weights": FOLLOWS},
            FOLLOWED | TRAINERS,
            metadata(),
            Target("step-3", "spec.weights.follow"),
        ),
        ({"weights": FOLLOWS}, TRAINERS, metadata(), None),
        ({}, FOLLOWED | TRAINERS, metadata(), Target("step-2", "a trainer at the fleet API")),
    ],
)
def test_the_target_and_what_sets_it_fit_into_a_header(
    spec: dict[str, Any], status: dict[str, Any], raw: dict[str, Any], target: Target | None
) -> None:
    assert target_of(fleets.fleet(spec, status=status), raw) == target
