"""The spec of an RLInferenceFleet as models. The operator never writes it.

crds/ is generated from this package, so ``kubectl explain`` prints the descriptions here.
The API server checks what users write (schema and CEL, no webhook). These models ignore
unknown fields, because an older operator may read objects of a newer CRD.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from rlfleet_operator.crd.field_types import (
    MARKER_PATTERN,
    AbsolutePath,
    DigestField,
    Model,
    ModelPath,
    PodOverrides,
    PositiveQuantity,
    VersionName,
    VolumeSource,
    rules,
)
from rlfleet_operator.crd.lora import ADAPTER_RULES, AdapterSpec
from rlfleet_operator.crd.retention import RetentionSpec
from rlfleet_operator.crd.rollout_spec import RolloutSpec, StalenessSpec
from rlfleet_operator.crd.store_spec import SourceSpec
from rlfleet_operator.crd.worker_spec import EngineSpec, SidecarSpec

GROUP = "rlfleet.dev"
API_VERSION = "v1alpha1"
KIND = "RLInferenceFleet"
PLURAL = "rlinferencefleets"


class ModelSpec(Model):
    """The base model: its name for clients, and the files that an engine boots with."""

    name: str = Field(
        min_length=1, max_length=256, description="The name that clients send as `model`."
    )
    path: ModelPath = Field(
        description="Directory of the config, tokenizer and safetensors that an engine boots with."
    )
    volume: VolumeSource | None = Field(
        default=None,
        description="Volume that holds `path`, one source as in a Pod's `volumes`, e.g."
        " {persistentVolumeClaim: {claimName: models}}; mounted read-only."
        " Omit it if the image or `template` provides the files.",
    )
    mount_path: AbsolutePath | None = Field(
        default=None, description="Mount path of `volume`. Default: `path`."
    )


class CacheSpec(Model):
    """Each worker's copies of checkpoints: the served version, the one before it, and the next.

    The sidecar copies a version while the engine serves. The reload reads the copy, so the trainer
    may delete the original.
    """

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "!has(self.medium) || self.medium != 'Memory' || has(self.size)",
                "weights.cache.medium Memory needs weights.cache.size, which counts as memory",
            ),
        )
    )

    enabled: bool = Field(
        default=True,
        description="If false, reloads read the trainer's directory, which must not be deleted.",
    )
    size: PositiveQuantity | None = Field(
        default=None,
        description="Maximum size of all copies: the emptyDir's sizeLimit, not a reservation. Three"
        " times a checkpoint keeps all three versions, twice all but the previous one. A version"
        " that does not fit is rejected as CacheFull. Default for Disk: 1Ti; a tenth of the node's"
        " file system always stays free.",
    )
    medium: Literal["Disk", "Memory"] = Field(
        default="Disk",
        description="Disk uses the node's ephemeral storage. Memory uses a tmpfs that counts as the"
        " sidecar's memory; sidecar.resources.limits.memory, if set, must include `size`.",
    )


class Follow(StrEnum):
    """Whether the operator takes up new versions by itself."""

    NEVER = "Never"
    LATEST = "Latest"


class WeightsSpec(Model):
    """Where workers find the trainer's checkpoints: `path` on a volume, or `source` in a store."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "has(self.path) != has(self.source)",
                "weights needs either path, on a volume, or source, in an object store",
            ),
            (
                "!has(self.source) || (!has(self.volume) && !has(self.mountPath))",
                "weights.volume and mountPath belong to weights.path: remove them with a source",
            ),
            (
                "!has(self.retention) || !has(self.retention.keep) || has(self.source)",
                (
                    "weights.retention.keep needs weights.source: volumes are mounted read-only, so"
                    " let the trainer delete there, or remove keep"
                ),
            ),
            (
                "!has(self.retention) || !has(self.source) || !self.source.url.startsWith('http')",
                "weights.retention needs a volume, s3:// or gs://: an HTTP server lists nothing",
            ),
            (
                "!self.acknowledge || (has(self.path) && self.follow == 'Latest')",
                (
                    "weights.acknowledge needs weights.path and weights.follow Latest: workers"
                    " accept what a trainer offers on a volume, to serve it"
                ),
            ),
            (
                "!has(self.source) || self.cache.enabled",
                "weights.source needs weights.cache.enabled: engines read copies, not the store",
            ),
            (
                "!self.sharing || self.cache.enabled",
                "weights.sharing needs weights.cache.enabled: workers send copies",
            ),
            (
                (
                    "!has(self.path) || self.path.matches("
                    "'^/[^{}]*/([^/{}]*[{]version[}][^/{}]*)(/[^{}]*)?$')"
                ),
                (
                    "weights.path must name one directory per version and hold '{version}' once,"
                    " below a root directory, such as /weights/{version}"
                ),
            ),
            (
                (
                    "!has(self.mountPath) || !has(self.path) || self.path.startsWith("
                    "self.mountPath.endsWith('/') ? self.mountPath : self.mountPath + '/')"
                ),
                "weights.path must lie below weights.mountPath",
            ),
        )
    )

    path: AbsolutePath | None = Field(
        default=None,
        description="Path of a version's directory, e.g. /weights/{version}. A complete directory"
        " must not change.",
    )
    source: SourceSpec | None = None
    volume: VolumeSource | None = Field(
        default=None,
        description="Volume that holds the checkpoints, one source as in a Pod's `volumes`, e.g."
        " {persistentVolumeClaim: {claimName: weights}}; mounted read-only, but for the sidecars"
        " with `acknowledge`.",
    )
    mount_path: AbsolutePath | None = Field(
        default=None,
        description="Mount path of `volume`. Default: the part of `path` before the directory that"
        " holds {version}.",
    )
    markers: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=8)] = Field(
        default=["STABLE", ".finished"],
        json_schema_extra=rules(
            (
                f"self.all(m, m.matches('{MARKER_PATTERN}') && !(m in ['.', '..']))",
                "weights.markers: each must be one file name, without '/' and ','",
            )
        ),
        description="Files that mark a checkpoint as complete; one of them is enough. `.finished`"
        " counts only if it is not older than `.sender_ready`.",
    )
    follow: Follow = Field(
        default=Follow.NEVER,
        description="Latest: without weightVersion, workers serve the newest complete version below"
        " the directory that holds {version}. A pointer file there (`latest`,"
        " latest_checkpointed_iteration.txt) has precedence over the highest number; with an"
        " https:// source it is required. A rollout that gets on is not replaced; a version that"
        " failed is skipped when a newer one comes.",
    )
    acknowledge: bool = Field(
        default=False,
        description="Whether workers accept the versions that prime-rl's trainer offers, by"
        " `.receiver_ready` next to its `.sender_ready`: it writes none before that. They do once"
        " the fleet has taken up the one before. Needs `follow`, and a volume that may be written;"
        " a change replaces the pods.",
    )
    retention: RetentionSpec | None = None
    digest: DigestField | None = Field(
        default=None,
        description="sha256:HEX of rlfleet-manifest.json in weightVersion's directory. A manifest"
        " with another digest is rejected as DigestMismatch. Change it together with"
        " weightVersion.",
    )
    cache: CacheSpec = Field(default=CacheSpec(), json_schema_extra={"default": {}})
    sharing: bool = Field(
        default=False,
        description="Whether workers send one another the pieces of a version while they receive"
        " them, so that the volume or store is read once. Needs the cache, and workers of this"
        " release.",
    )
    run_id: str = Field(
        default="",
        max_length=128,
        description="Training run of weightVersion. Steps are compared only within a run.",
    )
    step: int | None = Field(
        default=None,
        ge=0,
        description="Step of weightVersion within runId. A lower step than before is rejected,"
        " unless rollout.allowRewind is set.",
    )

    @property
    def template(self) -> str:
        """Path or URL of a version, with {version}; empty if the object has neither."""
        return self.source.url if self.source is not None else self.path or ""


class FleetSpec(Model):
    """The desired state; the operator never writes it."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "!has(self.weightVersion) || self.weightVersion == 'base' || has(self.weights)",
                "weightVersion needs weights.path or weights.source, where workers find versions",
            ),
            *ADAPTER_RULES,
            (
                (
                    "!has(self.weights) || !has(oldSelf.weights) || !has(self.weights.step)"
                    " || !has(oldSelf.weights.step) || self.weights.step >= oldSelf.weights.step"
                    " || self.weights.runId != oldSelf.weights.runId || self.rollout.allowRewind"
                ),
                (
                    "weights.step must not be lower than before within one weights.runId: set"
                    " rollout.allowRewind to go back, or another weights.runId"
                ),
            ),
        )
    )

    replicas: int = Field(default=1, ge=0, le=10000, description="Number of workers.")
    weight_version: VersionName | None = Field(
        default=None,
        description="Version that every worker must serve: the name that replaces {version} in"
        " weights.path or weights.source, or 'base' for the base model. Without it, workers follow"
        " the trainer if weights.follow is Latest. Else trainers may request versions through the"
        " fleet API; until one does, serving workers keep their version and new workers load the"
        " version that most workers serve.",
    )
    model: ModelSpec
    weights: WeightsSpec | None = None
    adapters: Annotated[list[AdapterSpec], Field(max_length=64)] = Field(
        default_factory=list,
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        description="LoRA adapters that every worker serves, each under its own name; they change"
        " without a pause. Needs --enable-lora in engine.args. If empty, trainers may load adapters"
        " at the workers.",
    )
    engine: EngineSpec = Field(default_factory=EngineSpec)
    sidecar: SidecarSpec = Field(default_factory=SidecarSpec)
    template: PodOverrides = Field(
        default_factory=dict,
        description="Overrides of the worker pods, as in a Pod template: metadata.labels,"
        " metadata.annotations and spec (nodeSelector, tolerations, affinity, volumes, ...)."
        " Lists of named items are merged by name, volumeMounts by mountPath. The containers are"
        " `engine` and `sidecar`.",
    )
    # With an empty default the API server writes the nested defaults into each object.
    rollout: RolloutSpec = Field(default_factory=RolloutSpec, json_schema_extra={"default": {}})
    staleness: StalenessSpec | None = Field(
        default=None,
        description="Bounds on how old the served weights may be. Steps are weights.step where it"
        " was set for every served version of the run, else the numbers at the ends of the"
        " versions' names.",
    )
    history_limit: int = Field(
        default=10, ge=0, le=50, description="Number of ended rollouts in status.history."
    )
    status_worker_limit: int = Field(
        default=256, ge=0, le=512, description="Maximum number of workers in status.workers."
    )
