"""The containers of a worker: engine and sidecar, as a fleet's spec sets them."""

from typing import Annotated, Any, Literal

from pydantic import Field

from rlfleet_operator.crd.field_types import Model, Quantity, of_secret, rules


class ResourceList(Model):
    """Requests and limits of a container."""

    requests: dict[str, Quantity] = Field(default_factory=dict)
    """Amounts that the scheduler reserves, by resource name."""
    limits: dict[str, Quantity] = Field(default_factory=dict)
    """Amounts that the container may use at most, by resource name."""


def _without_default(schema: dict[str, Any]) -> None:
    """Leave the default out: within a list, a written one differs from what Git has."""
    schema.pop("default", None)


class EnvVar(Model):
    """One environment variable."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    """The variable's name."""
    value: str = Field(default="", max_length=4096, json_schema_extra=_without_default)
    """The variable's value."""


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
_SEVERAL_ENGINES = ("--data-parallel-size", "-dp")
_NO_EPLB = (
    "engine.args: --enable-eplb moves experts between ranks, where no reload puts them; leave it"
    " out"
)


class EngineSpec(Model):
    """The vLLM container of each worker."""

    image: str | None = Field(
        default=None,
        max_length=512,
        description="Image with vLLM and rlfleet's extension (Dockerfile.worker)."
        " Default: the operator's setting.",
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """Pull policy of the engine's and the sidecar's image."""
    args: Annotated[list[Annotated[str, Field(max_length=1024)]], Field(max_length=64)] = Field(
        default_factory=list,
        description="Additional flags of vLLM's API server.",
        json_schema_extra=rules(
            (
                f"!self.exists(a, a.split('=')[0].replace('_', '-') in {list(_OWN_FLAGS)})",
                "engine.args: "
                + ", ".join(_OWN_FLAGS)
                + " are set from the spec (model, engine.tensorParallelSize) or by rlfleet."
                " Set the samplers' API key as VLLM_API_KEY in engine.extraEnv",
            ),
            (
                f"!self.exists(a, a.split('=')[0].replace('_', '-') in {list(_SEVERAL_ENGINES)})",
                "engine.args: " + " and ".join(_SEVERAL_ENGINES) + ": the weights of one engine"
                " only can be proved. Set spec.replicas",
            ),
            (
                "!self.exists(a, a.replace('_', '-').startsWith('--enable-eplb'))",
                _NO_EPLB,
            ),
        ),
    )
    resources: ResourceList = Field(default_factory=ResourceList)
    tensor_parallel_size: int = Field(default=1, ge=1, le=64)
    """vLLM's --tensor-parallel-size."""
    extra_env: Annotated[list[EnvVar], Field(max_length=64)] = Field(
        default_factory=list,
        # Under server-side apply each manager owns its own variables.
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        description="Additional environment variables of the engine, plain values: one from a"
        " Secret goes into template.spec.containers. VLLM_API_KEY is the key of samplers.",
    )
    shared_memory: Quantity = Field(default="2Gi", description="Size of /dev/shm.")
    drain_seconds: int = Field(
        default=60,
        ge=0,
        le=86400,
        description="How long a pod that leaves (scaled down, replaced, drained) waits for the"
        " requests that it has; the rest is cut off. The pod's grace period is 30 s longer, unless"
        " the template sets it.",
    )
    self_test_seconds: int = Field(
        default=300,
        ge=0,
        le=3600,
        description="Time limit in seconds of a new engine's self-test before it serves: the base"
        " must reload faithfully, and each kind of tensor must change answers. 0 disables it: no"
        " proof then has Faithful or Sensitive, and an untested vLLM release is rejected.",
    )
    preload: bool = Field(
        default=True,
        description="Have a serving engine read a prepared version into its memory before the"
        " change, so that clients wait for less. Takes the version's size, once per worker, until"
        " the change; without room for it the change reads the files.",
    )
    require_tested: bool = Field(
        default=False,
        description="Reject vLLM releases that rlfleet was not tested with, even if their engines"
        " pass the self-test.",
    )


class SidecarSpec(Model):
    """The admin sidecar of each worker."""

    image: str | None = Field(
        default=None, max_length=512, description="Image of the sidecar. Default: the engine's."
    )
    resources: ResourceList = Field(
        default_factory=ResourceList,
        description="Requests and limits. Requests default to 250m cpu and 256Mi memory, unless a"
        " request or limit names that resource: a busy engine must leave the sidecar time for"
        " probes and prepares.",
    )
    tls_secret: Annotated[str, Field(max_length=253)] | None = Field(
        default=None,
        json_schema_extra=of_secret("sidecar.tlsSecret"),
        description="Secret of this namespace with tls.crt, tls.key and ca.crt, as cert-manager"
        " writes it. With it the sidecars speak HTTPS only, to the operator, to one another and to"
        " trainers. The certificate must be valid for FLEET-workers.NAMESPACE.svc; a renewed one"
        " is used without a restart.",
    )
    experimental_transfer: bool = Field(
        default=False,
        description="Whether a trainer may send weights into vLLM's transfer engine (NCCL) instead"
        " of writing checkpoints. Experimental: such weights are not checked before they are"
        " loaded, and a worker that restarts loses them.",
    )
