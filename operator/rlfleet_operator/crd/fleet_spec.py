"""The spec of an RLInferenceFleet as models: what the user wants.

crds/ is generated from this package, so a description here is what ``kubectl explain``
prints. What users write is checked by the API server (schema and CEL, no webhook); what is
read here tolerates unknown fields, because an older operator may meet a newer CRD. The
operator never writes it.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from rlfleet_operator.crd.field_types import (
    MARKER_PATTERN,
    AbsolutePath,
    DigestField,
    Model,
    PodOverrides,
    PositiveQuantity,
    Quantity,
    VersionName,
    VolumeSource,
    rules,
)
from rlfleet_operator.crd.lora import ADAPTER_RULES, AdapterSpec
from rlfleet_operator.crd.rollout_spec import RolloutSpec, StalenessSpec

GROUP = "rlfleet.dev"
API_VERSION = "v1alpha1"
KIND = "RLInferenceFleet"
PLURAL = "rlinferencefleets"


class ResourceList(Model):
    """Requests and limits of a container."""

    requests: dict[str, Quantity] = Field(default_factory=dict)
    """What the scheduler sets aside, by resource name."""
    limits: dict[str, Quantity] = Field(default_factory=dict)
    """What the container may use at most, by resource name."""


class EnvVar(Model):
    """One environment variable."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    """The variable's name."""
    value: str = Field(default="", max_length=4096)
    """Its value."""


class ModelSpec(Model):
    """The base model: what an engine boots with and is served as."""

    name: str = Field(
        min_length=1, max_length=256, description="The name that clients send as `model`."
    )
    path: AbsolutePath = Field(
        description="Directory with config, tokenizer and safetensors that the engine boots with."
    )
    volume: VolumeSource | None = Field(
        default=None,
        description="Volume that holds `path`, one source as in a Pod's `volumes`, e.g."
        " {persistentVolumeClaim: {claimName: models}}; mounted read-only."
        " Leave out when the image or `template` brings it.",
    )
    mount_path: AbsolutePath | None = Field(
        default=None, description="Where `volume` is mounted; the default is `path` itself."
    )


class CacheSpec(Model):
    """The worker's own copies of checkpoints: the version that it serves, the one before, the next.

    A prepare copies a version here while the engine serves; the change reads the copy, so the
    trainer may delete its own.
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
        description="With false a change reads the trainer's directory, which must stay.",
    )
    size: PositiveQuantity | None = Field(
        default=None,
        description="What the copies may take together, the emptyDir's sizeLimit; three times a"
        " checkpoint keeps all three versions, twice does without the previous one, and a version"
        " that does not fit is refused as CacheFull. It reserves nothing. Default with Disk: 1Ti,"
        " and a tenth of the node's file system is always left free.",
    )
    medium: Literal["Disk", "Memory"] = Field(
        default="Disk",
        description="Disk is the node's ephemeral storage. Memory is a tmpfs that counts as the"
        " sidecar's memory: sidecar.resources.limits.memory, if set, must have room for `size`.",
    )


class WeightsSpec(Model):
    """Where the trainer's checkpoints are."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "self.path.matches('^/[^{}]*/([^/{}]*[{]version[}][^/{}]*)(/[^{}]*)?$')",
                (
                    "weights.path must name one directory per version and hold '{version}' once,"
                    " below a root directory, such as /weights/{version}"
                ),
            ),
            (
                (
                    "!has(self.mountPath) || self.path.startsWith("
                    "self.mountPath.endsWith('/') ? self.mountPath : self.mountPath + '/')"
                ),
                "weights.path must lie below weights.mountPath",
            ),
        )
    )

    path: AbsolutePath = Field(
        description="One directory per version, never rewritten, e.g. /weights/{version}."
    )
    volume: VolumeSource | None = Field(
        default=None,
        description="Volume that holds the checkpoints, one source as in a Pod's `volumes`, e.g."
        " {persistentVolumeClaim: {claimName: weights}}; mounted read-only.",
    )
    mount_path: AbsolutePath | None = Field(
        default=None,
        description="Where `volume` is mounted; the default is the part of `path`"
        " before the directory that holds {version}.",
    )
    markers: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=8)] = Field(
        default=["STABLE", ".finished"],
        json_schema_extra=rules(
            (
                f"self.all(m, m.matches('{MARKER_PATTERN}') && !(m in ['.', '..']))",
                "weights.markers: each must be one file name, without '/' and ','",
            )
        ),
        description="Files by which a trainer says that a checkpoint is complete: any one is"
        " enough. `.finished` counts only if it is not older than `.sender_ready`.",
    )
    digest: DigestField | None = Field(
        default=None,
        description="sha256:HEX of the manifest (rlfleet-manifest.json) in weightVersion's"
        " directory; another one is refused as DigestMismatch. It is about weightVersion alone:"
        " change both at once.",
    )
    cache: CacheSpec = Field(default=CacheSpec(), json_schema_extra={"default": {}})
    run_id: str = Field(
        default="",
        max_length=128,
        description="The training run that weightVersion comes from; a new run begins a new order"
        " of steps.",
    )
    step: int | None = Field(
        default=None,
        ge=0,
        description="The step of weightVersion within runId. A lower one than before is refused,"
        " unless rollout.allowRewind says that it is meant.",
    )


_OWN_FLAGS = (
    "--model",
    "--served-model-name",
    "--host",
    "--port",
    "--uds",
    "--load-format",
    "--worker-extension-cls",
    "--tensor-parallel-size",
    "-tp",
    "--api-key",
    "--ssl-keyfile",
    "--root-path",
)


class EngineSpec(Model):
    """The vLLM container of each worker."""

    image: str | None = Field(
        default=None,
        max_length=512,
        description="Image with vLLM and rlfleet's extension (Dockerfile.worker);"
        " the default is the operator's.",
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the kubelet pulls the worker's images."""
    args: Annotated[list[Annotated[str, Field(max_length=1024)]], Field(max_length=64)] = Field(
        default_factory=list,
        description="More flags for vLLM's API server.",
        json_schema_extra=rules(
            (
                f"!self.exists(a, a.split('=')[0].replace('_', '-') in {list(_OWN_FLAGS)})",
                "engine.args: "
                + ", ".join(_OWN_FLAGS)
                + " are set from the spec (model, engine.tensorParallelSize) or by rlfleet;"
                " a key for samplers is VLLM_API_KEY in engine.extraEnv",
            )
        ),
    )
    resources: ResourceList = Field(default_factory=ResourceList)
    tensor_parallel_size: int = Field(default=1, ge=1, le=64)
    """vLLM's --tensor-parallel-size."""
    extra_env: Annotated[list[EnvVar], Field(max_length=64)] = Field(
        default_factory=list,
        description="More environment variables of the engine's container; VLLM_API_KEY is the key"
        " that vLLM asks of samplers.",
    )
    shared_memory: Quantity = Field(default="2Gi", description="Size of /dev/shm.")
    self_test_seconds: int = Field(
        default=300,
        ge=0,
        le=3600,
        description="How long the test of a new engine's reload in place may change one kind of"
        " tensors after the other before it serves. 0: no test; then no proof claims Faithful or"
        " Sensitive, and an untested vLLM release is refused.",
    )
    require_tested: bool = Field(
        default=False,
        description="Whether a vLLM release that rlfleet's suites never ran against is refused,"
        " though its engines pass their self-test.",
    )


class SidecarSpec(Model):
    """The admin sidecar of each worker."""

    image: str | None = Field(
        default=None, max_length=512, description="The default is the engine's image."
    )
    resources: ResourceList = Field(
        default_factory=ResourceList,
        description="Requests and limits. A request for cpu (250m) and for memory (256Mi) is set"
        " where neither a request nor a limit names it: without one, an engine that keeps its cores"
        " busy leaves the sidecar no time for probes and prepares.",
    )
    experimental_transfer: bool = Field(
        default=False,
        description="Whether a trainer may send weights into vLLM's transfer engine (NCCL) instead"
        " of writing checkpoints. Experimental: such weights are not checked before they are"
        " loaded, and a worker that restarts loses them.",
    )


class FleetSpec(Model):
    """What the user wants; the operator never writes it."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "!has(self.weightVersion) || self.weightVersion == 'base' || has(self.weights)",
                "weightVersion needs weights.path, which tells where versions are found",
            ),
            *ADAPTER_RULES,
            (
                (
                    "!has(self.weights) || !has(oldSelf.weights) || !has(self.weights.step)"
                    " || !has(oldSelf.weights.step) || self.weights.step >= oldSelf.weights.step"
                    " || self.weights.runId != oldSelf.weights.runId || self.rollout.allowRewind"
                ),
                (
                    "weights.step is lower than before within one weights.runId: set"
                    " rollout.allowRewind if going back is meant, or another weights.runId"
                ),
            ),
        )
    )

    replicas: int = Field(default=1, ge=0, le=10000, description="Number of workers.")
    weight_version: VersionName | None = Field(
        default=None,
        description="The version of the weights that every worker shall serve: the name that"
        " replaces {version} in weights.path, or 'base' for the base model. Has no default:"
        " a trainer or a GitOps tool owns it. Without it, and without a trainer's target in status,"
        " the operator changes no serving worker and brings late joiners to the version that most"
        " workers serve.",
    )
    model: ModelSpec
    weights: WeightsSpec | None = None
    adapters: Annotated[list[AdapterSpec], Field(max_length=64)] = Field(
        default_factory=list,
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        description="LoRA adapters that every worker serves, each under its own name. They change"
        " without a pause; needs --enable-lora in engine.args. Without one, adapters are the"
        " trainer's to load at the workers.",
    )
    engine: EngineSpec = Field(default_factory=EngineSpec)
    sidecar: SidecarSpec = Field(default_factory=SidecarSpec)
    template: PodOverrides = Field(
        default_factory=dict,
        description="Overrides of the worker pods, as in a Pod template: metadata.labels,"
        " metadata.annotations and spec (nodeSelector, tolerations, affinity, volumes, ...);"
        " lists of named things are merged by name. The containers are `engine` and `sidecar`.",
    )
    # An empty default, so that the API server writes the defaults within for people to read.
    rollout: RolloutSpec = Field(default_factory=RolloutSpec, json_schema_extra={"default": {}})
    staleness: StalenessSpec | None = Field(
        default=None,
        description="Bounds on how old the served weights may be. Steps are those of weights.step"
        " where it was declared with every version of the run that is served (status remembers"
        " it), else the numbers at the ends of the versions' names.",
    )
    history_limit: int = Field(
        default=10, ge=0, le=50, description="How many ended rollouts status.history keeps."
    )
    status_worker_limit: int = Field(
        default=256, ge=0, le=512, description="How many workers status.workers may list."
    )
