"""Opens a store by obstore, which is imported only here and only if a store is configured.

Credentials are files of a mounted Secret, which the kubelet renews: each prepare reads them
again. Without files obstore takes the pod's identity (web identity, workload identity) itself.
"""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.stores.url import StoreUrl

_CA = "ca.crt"
_S3 = {
    "AWS_ACCESS_KEY_ID": "access_key_id",
    "AWS_SECRET_ACCESS_KEY": "secret_access_key",
    "AWS_SESSION_TOKEN": "session_token",
}
_GCS = {"GOOGLE_SERVICE_ACCOUNT_KEY": "service_account_key"}
_BEARER = "HTTP_BEARER_TOKEN"
_FILES = (*_S3, *_GCS, _BEARER, _CA)
_MAX_SECRET_BYTES = 1 << 20
_TIMEOUTS = {"connect_timeout": "5s", "read_timeout": "20s", "timeout": "10min"}
_BACKOFF = {
    "init_backoff": timedelta(milliseconds=200),
    "max_backoff": timedelta(seconds=10),
    "base": 2,
}
_MAX_RETRIES = 20
_Secret = Mapping[str, str]


class Opened(NamedTuple):
    """A store with the library that reads it."""

    library: Any
    store: Any


class _Known(NamedTuple):
    secret: _Secret
    opened: Opened


class StoreClient:
    """One store; a changed Secret opens it again."""

    def __init__(self, settings: SidecarSettings, root: StoreUrl) -> None:
        import obstore  # noqa: PLC0415 - workers with a volume need not have it

        self._library: Any = obstore
        self._settings = settings
        self._root = root
        self._known: _Known | None = None

    def open(self) -> Opened:
        """Return the store, with the credentials as they are now."""
        secret = self._secret()
        if self._known is None or self._known.secret != secret:
            self._known = _Known(secret, Opened(self._library, self._made(secret)))
        return self._known.opened

    def _made(self, secret: _Secret) -> Any:
        made = {"s3": self._s3, "gs": self._gcs}.get(self._root.scheme, self._http)
        try:
            return made(secret)
        except Exception as error:  # noqa: BLE001 - its text may quote the Secret
            raise SidecarError(
                Code.CHECKPOINT_UNREADABLE,
                f"failed to open {self._root.bucket} ({type(error).__name__}); check"
                " weights.source and its credentialsSecret",
            ) from None

    def _s3(self, secret: _Secret) -> Any:
        options = {option: secret[name] for name, option in _S3.items() if name in secret}
        options |= _given(endpoint=self._settings.store_endpoint)
        options |= _given(region=self._settings.store_region)
        return self._library.store.S3Store(
            self._root.host,
            config={**options, **self._unsigned()},
            client_options=self._client_options(secret),
            retry_config=self._retries(),
        )

    def _gcs(self, secret: _Secret) -> Any:
        options = {option: secret[name] for name, option in _GCS.items() if name in secret}
        options |= _given(base_url=self._settings.store_endpoint)
        return self._library.store.GCSStore(
            self._root.host,
            config={**options, **self._unsigned()},
            client_options=self._client_options(secret),
            retry_config=self._retries(),
        )

    def _http(self, secret: _Secret) -> Any:
        options = self._client_options(secret)
        if token := secret.get(_BEARER):
            options["default_headers"] = {"Authorization": f"Bearer {token}"}
        return self._library.store.HTTPStore(
            str(self._root.bucket), client_options=options, retry_config=self._retries()
        )

    def _retries(self) -> dict[str, Any]:
        limit = timedelta(seconds=self._settings.store_retry_s)
        return {"max_retries": _MAX_RETRIES, "retry_timeout": limit, "backoff": _BACKOFF}

    def _unsigned(self) -> dict[str, bool]:
        return {"skip_signature": True} if self._settings.store_anonymous else {}

    def _client_options(self, secret: _Secret) -> dict[str, Any]:
        address = self._settings.store_endpoint or str(self._root)
        options: dict[str, Any] = {**_TIMEOUTS, "allow_http": address.startswith("http://")}
        return options | _given(root_certificate=secret.get(_CA, ""))

    def _secret(self) -> _Secret:
        folder = self._settings.store_credentials
        if folder is None:
            return {}
        texts = {name: _text(folder / name) for name in _FILES}
        return {name: text for name, text in texts.items() if text}


def _given(**option: str) -> dict[str, str]:
    return {name: text for name, text in option.items() if text}


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_SECRET_BYTES).decode().strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError):
        raise SidecarError(
            Code.CHECKPOINT_UNREADABLE,
            f"key {path.name} of weights.source.credentialsSecret is not readable; replace it",
        ) from None
