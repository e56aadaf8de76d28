"""Workers as Dynamo's discovery lists them, at the fleet API and at each sidecar."""

from uuid import UUID

from rlfleet_contract.schema import ContractReply

PATH = "/v1/rl/workers"
PROTOCOL_VERSION = 1
"""Dynamo's."""
ENGINE_ROUTES = (
    "abort_request",
    "control/get_weight_version",
    "control/is_paused",
    "control/is_sleeping",
    "control/pause_generation",
    "control/resume_generation",
    "control/sleep",
    "control/wake_up",
    "flush_cache",
    "get_weight_version",
    "init_weights_update_group",
    "is_paused",
    "liveness_probe",
    "load_lora",
    "pause_generation",
    "resume_generation",
    "set_weight_version",
    "sleep",
    "unload_lora",
    "update/finish_weight_update",
    "update/init_weight_transfer_engine",
    "update/list_loras",
    "update/load_lora",
    "update/start_weight_update",
    "update/unload_lora",
    "update/update_weight_version",
    "update/update_weights",
    "update_weights_from_disk",
    "update_weights_from_distributed",
    "wake_up",
)
"""A sidecar's routes below /engine, without those that it always rejects."""
_INSTANCE_DIGITS = 13
"""Hexadecimal digits of a pod's UID in an instance's number: 52 bits."""


class Discovered(ContractReply):
    """One worker."""

    namespace: str
    component: str
    """The fleet's name; from a sidecar, which does not know it, `worker`."""
    endpoint: str = "rl"
    instance_id: int
    """Changes with the worker's pod; below 2^53, which every JSON parser represents exactly."""
    transport: str = "http"
    request_plane_url: str
    """URL of its engine."""
    routes: tuple[str, ...] = ENGINE_ROUTES
    """Dynamo's engine routes, below /engine of system_url."""
    system_url: str
    """URL of its sidecar, for those routes."""
    admin_base_url: str
    """The same URL with the same token; clients that know both fields use this one."""
    model: str
    world_size: int | None = None
    """Ranks of its engine; absent while the sidecar does not know them."""
    error: str | None = None
    """Why the worker cannot be reached."""


class Discovery(ContractReply):
    """The reply to GET workers."""

    protocol_version: int = PROTOCOL_VERSION
    namespace: str
    workers: list[Discovered]


def instance_of(uid: str) -> int:
    """Return the instance number for a pod's UID; 0 without a UID."""
    return int(UUID(uid).hex[:_INSTANCE_DIGITS], 16) if uid else 0
