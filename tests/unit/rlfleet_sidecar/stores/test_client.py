"""Credentials as the kubelet mounts them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.stores.client import StoreClient
from rlfleet_sidecar.stores.url import StoreUrl


def client(folder: Path | None, url: str = "s3://b/run", **settings: Any) -> StoreClient:
    made = SidecarSettings.model_validate(
        {"model_name": "m", "model_path": "/m", "store_credentials": folder} | settings
    )
    return StoreClient(made, StoreUrl.of(url))


def test_the_store_stays_open_until_its_secret_changes(tmp_path: Path) -> None:
    subject = client(tmp_path)
    first = subject.open()
    assert subject.open() is first

    (tmp_path / "AWS_ACCESS_KEY_ID").write_text("a")
    (tmp_path / "AWS_SECRET_ACCESS_KEY").write_text("b\n")

    second = subject.open()
    assert second is not first
    assert second.store.config["secret_access_key"] == "b"


@pytest.mark.parametrize(
    ("name", "text", "url"),
    [
        ("AWS_ACCESS_KEY_ID", "of-a-lonely-key", "s3://b/run"),
        ("GOOGLE_SERVICE_ACCOUNT_KEY", '{"private_key": "the-secret"', "gs://b/run"),
        ("ca.crt", "the-secret", "s3://b/run"),
    ],
)
def test_an_unusable_secret_is_named_and_not_quoted(
    tmp_path: Path, name: str, text: str, url: str
) -> None:
    (tmp_path / name).write_text(text)

    with pytest.raises(SidecarError, match=r"check weights\.source and its credentials") as caught:
        client(tmp_path, url).open()
    assert text not in caught.value.message


def test_a_key_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "AWS_SESSION_TOKEN").write_bytes(b"\xff\xfe")

    with pytest.raises(SidecarError, match="key AWS_SESSION_TOKEN of"):
        client(tmp_path).open()


def test_region_endpoint_and_signature_follow_the_settings() -> None:
    settings: dict[str, Any] = {
        "store_endpoint": "http://h:1",
        "store_region": "r",
        "store_anonymous": True,
    }

    config = client(None, **settings).open().store.config

    assert (config["endpoint"], config["region"]) == ("http://h:1", "r")
    assert config["skip_signature"] in {True, "true"}


def test_a_worker_without_a_store_does_not_load_the_library() -> None:
    """Its import takes time at start-up, and images may lack it."""
    code = (
        "import sys, json, rlfleet_sidecar.app;"
        "from rlfleet_sidecar.checkpoints.layouts import Layouts;"
        "from rlfleet_sidecar.settings import SidecarSettings;"
        "Layouts.of(SidecarSettings(model_name='m', model_path='/m', cache_dir='/c',"
        " weights_source='s3://b/{version}'));"
        "print(json.dumps('obstore' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert json.loads(done.stdout) is False
