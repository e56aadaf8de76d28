"""The URL of a version, with ``{version}`` in it. Pure.

It holds no credentials and no query, so that messages may contain it as it is.
"""

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote

from rlfleet_contract.paths import BASE_VERSION, VERSION_PATTERN
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.settings import PLACEHOLDER

_HTTP = frozenset({"http", "https"})


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """The place of an object, or of what begins with its name."""

    scheme: str
    host: str
    """The bucket, or an HTTP server with its port."""
    parts: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Self:
        """Split a URL that the settings have checked.

        A bucket's objects are named as the URL says; of an HTTP server's it is percent-encoded.
        """
        scheme, _, rest = text.partition("://")
        host, *parts = rest.split("/")
        named = map(unquote, parts) if scheme in _HTTP else parts
        return cls(scheme, host, tuple(part for part in named if part))

    @property
    def key(self) -> str:
        """Its name in the bucket or on the server."""
        return "/".join(self.parts)

    @property
    def name(self) -> str:
        """The last part of its name; empty for a bucket or server alone."""
        return self.parts[-1] if self.parts else ""

    @property
    def parent(self) -> "StoreUrl":
        """The place that holds it; of a bucket or server itself."""
        return StoreUrl(self.scheme, self.host, self.parts[:-1])

    @property
    def is_http(self) -> bool:
        """Whether it is a plain HTTP server, which lists nothing."""
        return self.scheme in _HTTP

    @property
    def bucket(self) -> "StoreUrl":
        """The bucket or server alone."""
        return StoreUrl(self.scheme, self.host, ())

    def __truediv__(self, name: str) -> "StoreUrl":
        return StoreUrl(self.scheme, self.host, (*self.parts, name))

    def __str__(self) -> str:
        return f"{self.scheme}://{'/'.join((self.host, *self.parts))}"


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """The location of versions in a store: a root and the parts beneath it."""

    root: StoreUrl
    parts: tuple[str, ...]

    @classmethod
    def of(cls, template: str) -> Self:
        """Split a template such as s3://bucket/run/{version} before its placeholder."""
        url = StoreUrl.of(template)
        first = next(index for index, part in enumerate(url.parts) if PLACEHOLDER in part)
        return cls(StoreUrl(url.scheme, url.host, url.parts[:first]), url.parts[first:])

    def places_of(self, version: str) -> tuple[StoreUrl, ...]:
        """Return the version's places from the outermost to the one with the weights."""
        places = [self.root]
        for part in self.parts:
            places.append(places[-1] / part.replace(PLACEHOLDER, version))
        return tuple(places[1:])

    def folder_of(self, version: str) -> StoreUrl:
        """Return the place of a version."""
        return self.places_of(version)[-1]

    def version_of(self, directory: str) -> str:
        """Return the version of a URL, from its name; raises if it has none."""
        before, after = str(self.folder_of(PLACEHOLDER)).split(PLACEHOLDER)
        given = directory.rstrip("/")
        if self.root.is_http:
            given = str(StoreUrl.of(given))
        version = given.removeprefix(before).removesuffix(after)
        is_name = re.fullmatch(VERSION_PATTERN, version) is not None and version != BASE_VERSION
        if not is_name or before + version + after != given:
            raise SidecarError(
                Code.PATH_REFUSED,
                f"{directory:.300} is not the place of a version (expected"
                f" {self.folder_of(PLACEHOLDER)}, not {BASE_VERSION})",
            )
        return version
