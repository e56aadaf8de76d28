"""LoRA adapters of a fleet: the fields of spec.adapters and status.adapters."""

from pydantic import ConfigDict, Field

from rlfleet_operator.crd.field_types import AbsolutePath, Model, VersionName, rules

_PLACEHOLDER = "{version}"
LORA_FLAG = "--enable-lora"
"""vLLM's flag, without which an engine loads no adapters."""


class AdapterSpec(Model):
    """A LoRA adapter that every worker must serve."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "!self.path.replace('{version}', '', 1).matches('[{}]')",
                "adapters[].path may hold '{version}' once, and no other braces",
            ),
        )
    )

    name: VersionName = Field(description="The name that clients send as `model`.")
    path: AbsolutePath = Field(
        description="Directory of the adapter, below the root of weights.path; may hold {version}."
    )
    version: VersionName = Field(
        description="Version of the adapter, which replaces {version} in `path`. A new version"
        " replaces the old one on every worker without a pause."
    )

    @property
    def directory(self) -> str:
        """The path of the adapter's version inside a worker."""
        return self.path.replace(_PLACEHOLDER, self.version)


_NONE = "!has(self.adapters) || size(self.adapters) == 0"
ADAPTER_RULES = (
    (
        f"{_NONE} || (has(self.weights) && has(self.weights.path))",
        "adapters need weights.path: their directories must lie below its root",
    ),
    (
        (
            f"{_NONE} || (has(self.engine) && has(self.engine.args)"
            f" && self.engine.args.exists(a, a.replace('_', '-') == '{LORA_FLAG}'))"
        ),
        (
            "adapters need --enable-lora in engine.args, and sufficient --max-lora-rank and"
            " --max-loras"
        ),
    ),
    (
        f"{_NONE} || !self.adapters.exists(a, a.name == self.model.name)",
        "an adapter must have another name than model.name",
    ),
)
"""CEL rules for specs with adapters, each with the message of its rejection."""


class AdapterStatus(Model):
    """The state of one adapter on all workers."""

    name: str
    """Name that clients send as `model`."""
    version: str
    """Version that every worker must serve."""
    loaded_workers: int = 0
    """Number of workers that serve it."""
    workers: int = 0
    """Number of workers that must serve it."""
    reason: str = ""
    """Problem code of the first worker that failed to load it; empty if none failed."""
    message: str = Field(default="", max_length=512)
    """Details of that failure."""
