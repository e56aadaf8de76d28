"""The URL of a version and back."""

import pytest

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.stores.url import StoreLayout, StoreUrl


@pytest.mark.parametrize(
    ("template", "root", "places"),
    [
        ("s3://b/run/{version}", "s3://b/run", ["s3://b/run/v1"]),
        ("s3://b/{version}", "s3://b", ["s3://b/v1"]),
        ("gs://b/step-{version}/weight", "gs://b", ["gs://b/step-v1", "gs://b/step-v1/weight"]),
        ("https://h:8443/a/{version}", "https://h:8443/a", ["https://h:8443/a/v1"]),
    ],
)
def test_a_template_leads_to_places(template: str, root: str, places: list[str]) -> None:
    layout = StoreLayout.of(template)

    assert str(layout.root) == root
    assert [str(place) for place in layout.places_of("v1")] == places
    assert layout.version_of(f"{places[-1]}/") == "v1"


@pytest.mark.parametrize(
    "directory",
    ["", "s3://b/run", "s3://b/run/", "s3://b/run/a/b", "s3://b/run/base", "s3://c/run/v1", "/v1"],
)
def test_another_place_has_no_version(directory: str) -> None:
    with pytest.raises(SidecarError, match=r"expected s3://b/run/\{version\}") as caught:
        StoreLayout.of("s3://b/run/{version}").version_of(directory)

    assert caught.value.code is Code.PATH_REFUSED


def test_a_bucket_and_a_key_are_separated() -> None:
    url = StoreUrl.of("s3://b/run/v1") / "config.json"

    assert (str(url.bucket), url.key, url.is_http) == ("s3://b", "run/v1/config.json", False)
    assert StoreUrl.of("http://h/a").is_http


def test_an_http_url_is_percent_encoded_and_a_bucket_s_is_not() -> None:
    http = StoreLayout.of("https://h/my%20run/{version}")

    assert (http.folder_of("v1") / "a%b").key == "my run/v1/a%b"
    assert http.version_of("https://h/my%20run/v1") == "v1"
    assert StoreLayout.of("s3://b/my%20run/{version}").folder_of("v1").key == "my%20run/v1"
