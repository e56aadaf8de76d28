"""Adapters of a fleet: what is wanted, and how they stand."""

from pydantic import ConfigDict, Field

from rlfleet_operator.crd.field_types import AbsolutePath, Model, VersionName, rules

_PLACEHOLDER = "{version}"
LORA_FLAG = "--enable-lora"
"""The argument by which an engine takes adapters."""


class AdapterSpec(Model):
    """A LoRA adapter that every worker shall serve."""

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
        description="Its directory, below the root of weights.path; {version} in it is `version`."
    )
    version: VersionName = Field(
        description="Which one: another version replaces what the name stands for, on every"
        " worker, with requests in flight."
    )

    @property
    def directory(self) -> str:
        """Where it lies, as a worker sees it."""
        return self.path.replace(_PLACEHOLDER, self.version)


_NONE = "!has(self.adapters) || size(self.adapters) == 0"
ADAPTER_RULES = (
    (
        f"{_NONE} || has(self.weights)",
        "adapters need weights.path, below whose root they lie",
    ),
    (
        (
            f"{_NONE} || (has(self.engine) && has(self.engine.args)"
            f" && self.engine.args.exists(a, a.replace('_', '-') == '{LORA_FLAG}'))"
        ),
        (
            "adapters need --enable-lora in engine.args, and --max-lora-rank and --max-loras to"
            " suit them"
        ),
    ),
    (
        f"{_NONE} || !self.adapters.exists(a, a.name == self.model.name)",
        "an adapter must have another name than model.name",
    ),
)
"""What a spec with adapters has to be, in CEL, each with the sentence for whoever is refused."""


class AdapterStatus(Model):
    """One adapter, over all workers."""

    name: str
    """The name that clients send."""
    version: str
    """The version that every worker shall serve."""
    loaded_workers: int = 0
    """Workers that serve it."""
    workers: int = 0
    """Workers that shall."""
    reason: str = ""
    """Why the first that does not serve it failed to load it, in one word; empty if none did."""
    message: str = Field(default="", max_length=512)
    """The same in a sentence."""
