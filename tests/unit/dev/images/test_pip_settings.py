"""What a build mounts of this machine's pip settings, and what of that stays in an image."""

import configparser
from pathlib import Path

import pytest

from dev.images import pip_settings


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without settings."""
    monkeypatch.setattr(pip_settings, "FILES", ())
    monkeypatch.setenv("RLFLEET_CACHE", str(tmp_path / "cache"))
    for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "PIP_CERT", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with certificates and two folders of wheels, one of which is not there."""
    bundle, wheels = tmp_path / "bundle.pem", tmp_path / "wheels"
    bundle.write_text("CERTIFICATE")
    wheels.mkdir()
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path}/none {wheels}")


def mounted() -> dict[Path, Path]:
    """Return what is mounted, by where."""
    pairs = [flag.split(":") for flag in pip_settings.mounts()[1::2]]
    assert {mode for _, _, mode in pairs} == {"ro"}
    return {Path(place): Path(source) for source, place, _ in pairs}


def settings(found: dict[Path, Path]) -> configparser.SectionProxy:
    config = configparser.ConfigParser(interpolation=None)
    config.read(found[pip_settings.MOUNTED] / "pip.conf")
    return config["global"]


@pytest.mark.usefixtures("named")
def test_certificates_and_wheels_are_where_the_settings_say(tmp_path: Path) -> None:
    found = mounted()
    said = settings(found)

    bundle = Path(said["cert"])
    assert (found[bundle.parent] / bundle.name).read_text() == "CERTIFICATE"
    missing, wheels = said["find-links"].split()
    assert missing == f"{tmp_path}/none"
    assert found[Path(wheels)] == tmp_path / "wheels"


def test_without_either_the_settings_name_none() -> None:
    assert not {"cert", "find-links"} & set(settings(mounted()))


@pytest.mark.usefixtures("named")
def test_an_image_keeps_the_same_empty_folder_whatever_was_mounted() -> None:
    """buildah leaves the place of a mount in the layer, if it is in no other mount."""
    found = mounted()
    inner = set(found) - {pip_settings.MOUNTED}

    assert inner
    for place in inner:
        assert (found[pip_settings.MOUNTED] / place.relative_to(pip_settings.MOUNTED)).is_dir()
