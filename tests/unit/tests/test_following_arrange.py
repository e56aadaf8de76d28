"""What the demo changes in the example's manifests, and that it leaves the rest."""

from pathlib import Path
from typing import Any

import yaml

from rlfleet_operator.crd.fleet_spec import FleetSpec
from tests.e2e.following import arrange

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "trainer"
PLAN = arrange.Plan(steps=15, every_s=8, keep=4, worker_image="registry/worker:1")


def example() -> list[dict[str, Any]]:
    files = ("store.yaml", "fleet.yaml", "trainer.yaml")
    return [one for name in files for one in yaml.safe_load_all((EXAMPLE / name).read_text())]


def pod_of(kind: str) -> dict[str, Any]:
    (found,) = arrange.of_kinds(arrange.arranged(example(), PLAN), kind)
    pod: dict[str, Any] = found["spec"]["template"]["spec"]
    return pod


def test_the_trainer_is_the_example_s_with_the_run_s_steps() -> None:
    (container,) = pod_of("Job")["containers"]

    assert container["image"] == PLAN.worker_image
    assert container["command"] == ["python3", "/following/kept.py", "/trainer/trainer.py"]
    assert container["args"] == [
        "s3://training/run-1",
        "/data/models/qwen",
        "--steps=15",
        "--every=8",
    ]


def test_the_trainer_may_write_its_copies() -> None:
    pod = pod_of("Job")
    mounts = {one["mountPath"]: one for one in pod["containers"][0]["volumeMounts"]}

    assert "readOnly" not in mounts["/data"]
    assert mounts["/following"]["name"] in {volume["name"] for volume in pod["volumes"]}
    assert mounts["/trainer"]["name"] == "trainer"


def test_the_store_runs_its_program_from_the_volume() -> None:
    pod = pod_of("Deployment")
    (container,) = pod["containers"]

    assert container["command"] == [f"/volume/{arrange.SERVER}"]
    assert container["args"][-2:] == ["posix", "/data"]
    assert {one["name"] for one in container["volumeMounts"]} == {
        one["name"] for one in pod["volumes"]
    }


def test_the_fleet_follows_and_deletes_unneeded_versions() -> None:
    (fleet,) = arrange.of_kinds(arrange.arranged(example(), PLAN), "RLInferenceFleet")
    spec = FleetSpec.model_validate(fleet["spec"])

    assert fleet["metadata"]["name"] == arrange.FLEET
    assert spec.weights is not None
    assert spec.weights.follow == "Latest"
    assert spec.weights.retention is not None
    assert spec.weights.retention.keep == PLAN.keep


def test_the_given_objects_and_all_others_stay_as_they_are() -> None:
    given = example()

    made = arrange.arranged(given, PLAN)

    assert given == example()
    assert arrange.of_kinds(made, "Secret", "Service") == arrange.of_kinds(
        given, "Secret", "Service"
    )
