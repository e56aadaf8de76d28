"""Which proxy leads to the API server."""

import pytest

from rlfleet_operator.kube.client import proxy_to

PROXY = "http://proxy.example:3128"
NAMES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")


@pytest.mark.parametrize(
    ("server", "variables", "proxy"),
    [
        ("https://10.96.0.1:443", {}, None),
        ("https://10.96.0.1:443", {"HTTPS_PROXY": PROXY}, PROXY),
        ("https://10.96.0.1:443", {"https_proxy": PROXY}, PROXY),
        ("https://10.96.0.1:443", {"HTTP_PROXY": PROXY}, None),
        ("https://10.96.0.1:443", {"HTTPS_PROXY": PROXY, "NO_PROXY": "10.96.0.1"}, None),
        ("https://api.example.com", {"HTTPS_PROXY": PROXY, "NO_PROXY": ".example.com"}, None),
        ("http://127.0.0.1:8080", {"HTTP_PROXY": PROXY}, PROXY),
        ("", {"HTTPS_PROXY": PROXY}, None),
    ],
)
def test_the_environment_names_the_proxy_to_the_api_server(
    monkeypatch: pytest.MonkeyPatch, server: str, variables: dict[str, str], proxy: str | None
) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert proxy_to(server) == proxy
