"""Every path, port, header and well-known name of the contract.

A route that is not named here does not exist for the other side.
"""

CONTRACT_VERSION = 1

ADMIN_PORT = 8090
"""The sidecar listens here, on the pod's address."""
ENGINE_PORT = 8000
"""vLLM's API server listens here, on the pod's address."""

# The sidecar's health routes. They need no credentials: the kubelet has none.
LIVE_PATH = "/live"
"""200 while the sidecar's own loop answers."""
READY_PATH = "/ready"
"""200 while this worker may take traffic: its engine is up with a proved version.

It stays 200 during a change that began from a proved version, because requests
wait at the gate; it turns 503 when the engine is down, was restarted or is in doubt.
"""

LIVENESS_PATH = "/liveness"
"""GET, for anybody: whether the engine answers at all, paused or not. The extension's is 503
when its core hangs; the sidecar serves the same path and asks there."""

# The admin routes. Each needs the fleet's bearer token.
STATE_PATH = "/v1/rl/state"
PREPARE_PATH = "/v1/rl/prepare"
PAUSE_PATH = "/v1/rl/pause"
FLUSH_PATH = "/v1/rl/flush"
RELOAD_PATH = "/v1/rl/reload"
VERIFY_PATH = "/v1/rl/verify"
RESUME_PATH = "/v1/rl/resume"
UPDATE_WEIGHTS_PATH = "/v1/rl/update_weights"
ADAPTERS_PATH = "/v1/rl/adapters"
"""GET lists them, POST loads one or replaces it, DELETE unloads one."""

# The gate's control routes, inside vLLM's API server, for loopback peers only.
GATE_PATH = "/rlfleet/gate"
"""GET tells a GateState, POST takes a GateCommand and tells the GateState after it."""
ENGINE_ADAPTERS_PATH = "/rlfleet/adapters"
"""GET tells EngineAdapters, POST takes an EngineAdapterCommand and tells them after it."""
EXIT_PATH = "/rlfleet/exit"
"""POST ends the engine at once: the way out of an engine in doubt."""
PROBE_HEADER = "x-rlfleet-probe"
"""Marks the sidecar's own probe, which passes a closed gate (loopback peers only)."""

# What samplers and the extension say to one another, on the data routes that read the model.
VERSION_HEADER = "x-rlfleet-version"
"""On a reply: the version that the engine held when the request passed the gate."""
END_VERSION_HEADER = "x-rlfleet-version-end"
"""On a reply that goes out whole: the version that it held when the reply was made. On a
request, with the value ``event``: have a stream tell it, in an event before its end."""
EXACT_VERSION_HEADER = "x-rlfleet-exact-version"
"""On a request: answer with this version, or with 409."""
MIN_VERSION_HEADER = "x-rlfleet-min-version"
"""On a request: answer with this version or a later one, or with 409."""

EPOCH_HEADER = "x-rlfleet-epoch"
"""With GET state: the epoch that the caller drives with. It is the heartbeat by which a
driver keeps a pause from running out; one of an epoch that is over keeps nothing."""
TARGET_HEADER = "x-rlfleet-target"
"""With GET state and an epoch: the version that the fleet is asked for. A worker rejects a
trainer's pause and weights while there is one."""
OWNER_HEADER = "x-rlfleet-target-owner"
"""With the target: what sets it, for the message of that rejection."""
UNASKED_HEADER = "x-rlfleet-unasked"
"""With GET state: the caller's epoch, and that the fleet is asked for no version. It is no
heartbeat: a change that nothing leads still runs out."""
OVER_HEADER = "x-rlfleet-over"
"""With GET state: EPOCH.SEQUENCE of the caller's last command that it has given up. That one
and all before it are over: what has not arrived by then is refused, however late it comes."""
DEFAULT_TTL_S = 120.0
"""How long a change stands still without a sign of its driver before the sidecar ends it."""
MAX_TTL_S = 3600.0
TRAINER_TTL_S = 1500.0
"""The same of a trainer's change: longer than prime-rl goes on asking one slow engine, 1440 s."""

RELOAD_RPC = "rlfleet_reload"
"""The worker extension's methods, called by vLLM's /collective_rpc on every rank: this one
takes a directory and its files and tells what was Installed."""
READ_BACK_RPC = "rlfleet_read_back"
"""Tells the ReadBack of an engine that was not reloaded; None where nothing can be read."""
CONSUMED_RPC = "rlfleet_consumed"
"""Tells what was Consumed when the engine booted; None where that was not seen."""
DESCRIBE_RPC = "rlfleet_describe"
"""Takes kinds of tensors and tells the EngineDescription (selftest.py)."""

BASE_VERSION = "base"
"""The name of the weights that the engine boots with (spec.model.path)."""

VERSION_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$"
"""One directory name: no separator, no leading dot, at most 128 characters."""

ADAPTER_PATTERN = VERSION_PATTERN
"""An adapter's name is a model's name for samplers, and a directory's in the cache."""

MODEL_PATTERN = r"^[^#\x00-\x20\x7f]{1,256}$"
"""What may stand where an adapter is named: the model's own name too, which is no directory's.
The mark that the engine puts behind a name is in none."""

DIGEST_PATTERN = r"^sha256:[0-9a-f]{64}$"

MANIFEST_FILE = "rlfleet-manifest.json"
"""Beside the weights, optional: {"files": {NAME: {"size": BYTES, "sha256": HEX}}}."""
