"""An object store as the source of versions: the fields of spec.weights.source."""

from typing import Annotated

from pydantic import ConfigDict, Field

from rlfleet_operator.crd.field_types import Model, of_secret, rules

_SEGMENT = "([A-Za-z0-9._=+:~-]|%(2[0-9A-Da-d]|[3-68-9A-Fa-f][0-9A-Fa-f]|7[0-9ACEace]))"
"""A character of a name, or one that is percent-encoded: no slash, dot, brace or control character,
which an http server would take for another place."""
_HOST = "[A-Za-z0-9][A-Za-z0-9.:_-]*"
URL_PATTERN = (
    f"^(s3|gs|https?)://{_HOST}(/{_SEGMENT}+)*/{_SEGMENT}*[{{]version[}}]{_SEGMENT}*"
    f"(/{_SEGMENT}+)*$"
)
ENDPOINT_PATTERN = f"^https?://{_HOST}(/{_SEGMENT}+)*/?$"


class SourceSpec(Model):
    """An object store, which the sidecars read; no volume is mounted.

    A version is what lies below its URL. The same markers as on a volume say that it is complete.
    Each object is read only as it was listed: if its ETag changes, the version is rejected.
    """

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "!has(self.endpoint) || !self.url.startsWith('http')",
                "weights.source.endpoint is for s3:// and gs:// alone: write the server into url",
            ),
            (
                "!has(self.region) || self.url.startsWith('s3://')",
                "weights.source.region is for s3:// alone",
            ),
            (
                "!self.anonymous || !self.url.startsWith('http')",
                "weights.source.anonymous is for s3:// and gs:// alone",
            ),
        )
    )

    url: Annotated[str, Field(max_length=512)] = Field(
        json_schema_extra=rules(
            (
                f"self.matches('{URL_PATTERN}') && !self.matches('/[.]{{1,2}}(/|$)')",
                (
                    "weights.source.url must be an s3://, gs:// or https:// URL without user and"
                    " query, and hold '{version}' once, such as s3://bucket/run/{version}"
                ),
            )
        ),
        description="URL of a version, e.g. s3://bucket/run/{version}, gs://bucket/run/{version} or"
        " https://host/run/{version}. An HTTP server lists nothing: there a version's files are"
        " those of its index, or model.safetensors.",
    )
    endpoint: Annotated[str, Field(max_length=512)] | None = Field(
        default=None,
        json_schema_extra=rules(
            (
                f"self.matches('{ENDPOINT_PATTERN}')",
                "weights.source.endpoint must be a URL such as https://minio.storage:9000",
            )
        ),
        description="Address of a server that is compatible with S3 (MinIO, Ceph, R2), e.g."
        " https://minio.storage:9000; buckets are addressed by path. Default: that of AWS, or of"
        " Google for gs://.",
    )
    region: Annotated[str, Field(max_length=64)] | None = Field(
        default=None,
        json_schema_extra=rules(
            ("self.matches('^[A-Za-z0-9-]+$')", "weights.source.region must be a region's name")
        ),
        description="Region of the bucket. Default: that of the pod's identity, or us-east-1.",
    )
    credentials_secret: Annotated[str, Field(max_length=253)] | None = Field(
        default=None,
        json_schema_extra=of_secret("weights.source.credentialsSecret"),
        description="Secret of this namespace, mounted in the sidecars alone and read again for"
        " each version. Keys, as far as present: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,"
        " AWS_SESSION_TOKEN; GOOGLE_SERVICE_ACCOUNT_KEY (JSON); HTTP_BEARER_TOKEN; ca.crt (PEM,"
        " trusted in addition). Without it: the pod's identity, see `template` for its"
        " serviceAccountName.",
    )
    anonymous: bool = Field(
        default=False, description="Whether requests are not signed, for a public bucket."
    )
