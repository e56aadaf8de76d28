"""Which release of Kubernetes is built, and what an older one of its programs is not given."""

import pytest
import yaml

from dev.kubernetes import binaries
from dev.node import components
from dev.steps import StepFailed


@pytest.mark.parametrize("name", binaries.releases())
def test_a_release_is_chosen_by_its_minor_version(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES", name)
    assert binaries.release().startswith(f"v{name}.")
    assert binaries.minor() == int(name.removeprefix("1."))


def test_an_unknown_release_is_rejected_with_those_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBERNETES", "1.12")
    with pytest.raises(StepFailed, match=r"there are 1\.30, 1\.37, and v1\.34\.\d+ without it"):
        binaries.release()


def test_an_older_kubelet_is_not_given_the_fields_of_a_newer_one() -> None:
    text = components.filled("kubelet.yaml")
    ours, older = (yaml.safe_load(components.without_newer(text, minor)) for minor in (34, 30))
    assert ours == yaml.safe_load(text)
    assert set(ours) - set(older) == {"failCgroupV1", "featureGates", "crashLoopBackOff"}
