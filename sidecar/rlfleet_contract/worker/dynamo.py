"""Workers as Dynamo's discovery lists them, at the fleet API and at each sidecar's own."""

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
"""What a sidecar serves below /engine, without those that it does nothing but refuse."""
_INSTANCE_DIGITS = 13
"""Hexadecimal digits of a pod's UID in an instance's number: 52 bits."""


class Discovered(ContractReply):
    """One worker."""

    namespace: str
    component: str
    """The fleet's name; at a sidecar's own address, which knows none, `worker`."""
    endpoint: str = "rl"
    instance_id: int
    """Another one after the worker's pod was replaced; below 2^53, so that any JSON reader
    keeps it."""
    transport: str = "http"
    request_plane_url: str
    """Where its engine answers."""
    routes: tuple[str, ...] = ENGINE_ROUTES
    """Dynamo's engine routes, below /engine of system_url."""
    system_url: str
    """Where its sidecar answers those."""
    admin_base_url: str
    """Where its sidecar answers; the same token. Clients that know both take this one."""
    model: str
    world_size: int | None = None
    """How many ranks its engine has; left out by a sidecar whose engine does not tell."""
    error: str | None = None
    """Why it cannot be asked."""


class Discovery(ContractReply):
    """The reply to GET workers."""

    protocol_version: int = PROTOCOL_VERSION
    namespace: str
    workers: list[Discovered]


def instance_of(uid: str) -> int:
    """Make an instance's number of its pod's UID; 0 if it has none."""
    return int(UUID(uid).hex[:_INSTANCE_DIGITS], 16) if uid else 0
