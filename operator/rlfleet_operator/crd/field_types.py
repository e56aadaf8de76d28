"""Field types of the resource, with the JSON schema and CEL rules that the API server applies."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, WithJsonSchema
from pydantic.alias_generators import to_camel

from rlfleet_contract.paths import DIGEST_PATTERN, VERSION_PATTERN


def rules(*rules: tuple[str, str]) -> dict[str, Any]:
    """Return CEL rules, each with the message of its rejection."""
    return {"x-kubernetes-validations": [{"rule": r, "message": m} for r, m in rules]}


def of_secret(field: str) -> dict[str, Any]:
    """Return the CEL rule of a field below spec that names a Secret."""
    name = "self.matches('^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$')"
    return rules((name, f"{field} must be the name of a Secret"))


class Model(BaseModel):
    """A frozen model with camel-cased names in YAML."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        # A docstring below a field is what `kubectl explain` prints.
        use_attribute_docstrings=True,
    )


def epoch_of(time: str) -> float:
    """Return an ISO 8601 time in seconds since the epoch; raises ValueError for anything else."""
    return datetime.fromisoformat(time).timestamp()


def _moment(time: str) -> str:
    try:
        epoch_of(time)
    except ValueError:
        raise ValueError("must be a time such as 2026-01-01T00:00:00Z") from None
    return time


Moment = Annotated[str, AfterValidator(_moment)]
"""A time as Kubernetes writes it; checked, because decisions depend on it."""

_QUANTITY: dict[str, Any] = {
    "x-kubernetes-int-or-string": True,
    "minimum": 0,
    # As in apimachinery's resource.Quantity.
    "pattern": r"^\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE][-+]?[0-9]+))?$",
}
Quantity = Annotated[int | str, WithJsonSchema(_QUANTITY)]
PositiveQuantity = Annotated[
    int | str,
    WithJsonSchema(
        {
            **_QUANTITY,
            **rules(
                (
                    "type(self) == int ? self > 0 : self.matches('^[^1-9a-zA-Z]*[1-9]')",
                    "must be more than 0, such as 100Gi",
                )
            ),
        }
    ),
]
MARKER_PATTERN = "^[^/,]{1,64}$"
"""A file name; without a comma, because the sidecar gets all names in one variable."""


def _count(rule: str, message: str) -> WithJsonSchema:
    """Return the schema of a number or percentage of workers that a CEL rule checks."""
    return WithJsonSchema({"x-kubernetes-int-or-string": True, **rules((rule, message))})


def _text(most: int, rule: str, message: str) -> WithJsonSchema:
    """Return the schema of a string of at most ``most`` characters that a CEL rule checks."""
    return WithJsonSchema({"type": "string", "maxLength": most, **rules((rule, message))})


IntOrPercent = Annotated[
    int | str,
    _count(
        "type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",
        "must be a number of workers of at least 1, or a percentage from '1%' to '100%'",
    ),
]
Share = Annotated[
    int | str,
    _count(
        "type(self) == int ? self >= 0 : self.matches('^([0-9][0-9]?|100)%$')",
        "must be a number of workers, or a percentage from '0%' to '100%'",
    ),
]
"""Like IntOrPercent, but may be 0."""


def _opaque(description: str, **properties: Any) -> dict[str, Any]:
    """Return the schema of an object that may have further fields."""
    known = {"properties": properties} if properties else {}
    open_ended = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {**open_ended, "description": description, **known}


def _strings(description: str) -> dict[str, Any]:
    one = {"type": "string"}
    return {"type": "object", "additionalProperties": one, "description": description}


PodOverrides = Annotated[
    dict[str, Any],
    WithJsonSchema(
        _opaque(
            "",
            metadata=_opaque(
                "Pod metadata; rlfleet reads only labels and annotations.",
                labels=_strings("Labels added to rlfleet's own."),
                annotations=_strings("Annotations added to rlfleet's own."),
            ),
            spec=_opaque("Pod spec fields, merged over rlfleet's."),
        )
    ),
]
VersionName = Annotated[
    str,
    _text(
        128,
        f"self.matches(r'{VERSION_PATTERN}')",
        "must be one directory name: letters, digits, '.', '_' and '-', beginning and ending with"
        " a letter or digit, at most 128 characters, no '/'",
    ),
]
DigestField = Annotated[
    str,
    _text(
        71,
        f"self.matches(r'{DIGEST_PATTERN}')",
        "must be 'sha256:' and 64 digits from 0-9a-f",
    ),
]
_ABSOLUTE = "self.startsWith('/') && !self.matches('(^|/)[.]{1,2}(/|$)') && !self.contains('//')"
AbsolutePath = Annotated[
    str, _text(512, _ABSOLUTE, "must be an absolute path without '.', '..' or '//'")
]
ModelPath = Annotated[
    str,
    _text(
        512,
        _ABSOLUTE,
        "must be an absolute path without '.', '..' or '//', such as /models/qwen. A"
        " name of the Hugging Face Hub is not downloaded: put the model on a volume, model.volume",
    ),
]
"""Where an engine's model lies. Users of vLLM write a name of the Hub there."""
VolumeSource = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "x-kubernetes-preserve-unknown-fields": True,
        }
    ),
]
