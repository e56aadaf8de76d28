"""Every path, port, header and well-known name of the contract.

The other side knows no other route.
"""

CONTRACT_VERSION = 1

ADMIN_PORT = 8090
"""The sidecar listens here, on the pod's address."""
ENGINE_PORT = 8000
"""vLLM's API server listens here, on the pod's address."""

# The sidecar's health routes, without credentials, because the kubelet has none.
LIVE_PATH = "/live"
"""200 while the sidecar's event loop answers."""
READY_PATH = "/ready"
"""200 while this worker may take traffic: its engine is up with a proved version.

It stays 200 during a change that began with a proved version, because requests
wait at the gate. It is 503 when the engine is down, was restarted or is in doubt.
"""

LIVENESS_PATH = "/liveness"
"""GET, without credentials: whether the engine answers, paused or not. The extension returns
503 when vLLM's core hangs; the sidecar serves the same path and asks the extension."""

# The admin routes, with the fleet's bearer token.
STATE_PATH = "/v1/rl/state"
WATCH_PATH = "/v1/rl/watch"
"""GET answers for as long as the caller reads: a line with the report at once and whenever it has
news, and an empty line every SIGN_S as a sign of life. Sidecars of earlier releases lack it."""
SIGN_S = 10.0
PREPARE_PATH = "/v1/rl/prepare"
PAUSE_PATH = "/v1/rl/pause"
FLUSH_PATH = "/v1/rl/flush"
RELOAD_PATH = "/v1/rl/reload"
VERIFY_PATH = "/v1/rl/verify"
RESUME_PATH = "/v1/rl/resume"
UPDATE_WEIGHTS_PATH = "/v1/rl/update_weights"
PIECES_PATH = "/v1/rl/pieces"
"""GET /VERSION/EDITION: what a worker has of a version that it shares (supply.py); GET
/VERSION/EDITION/NUMBER: one piece of it. Sidecars of earlier releases lack both."""
ADAPTERS_PATH = "/v1/rl/adapters"
"""GET lists LoRA adapters, POST loads or replaces one, DELETE unloads one."""

# The gate's control routes, inside vLLM's API server, for loopback peers only.
GATE_PATH = "/rlfleet/gate"
"""GET returns a GateState; POST takes a GateCommand and returns the GateState after it."""
ENGINE_ADAPTERS_PATH = "/rlfleet/adapters"
"""GET returns EngineAdapters; POST takes an EngineAdapterCommand and returns them after it."""
EXIT_PATH = "/rlfleet/exit"
"""POST ends the engine at once; the sidecar uses it for an engine in doubt."""
LOAD_HEADER = "x-rlfleet-load"
"""Marks a request of the sidecar that replaces weights, which the gate counts."""
PROBE_HEADER = "x-rlfleet-probe"
"""Marks the sidecar's own probe, which passes a closed gate (loopback peers only)."""

# Headers between samplers and the extension, on the data routes that read the model.
VERSION_HEADER = "x-rlfleet-version"
"""On a reply: the engine's version when the request passed the gate."""
END_VERSION_HEADER = "x-rlfleet-version-end"
"""On a reply without streaming: the engine's version when the reply was made. On a request,
with the value ``event``: the stream ends with an event that contains it."""
EXACT_VERSION_HEADER = "x-rlfleet-exact-version"
"""On a request: the version that must answer; else 409."""
MIN_VERSION_HEADER = "x-rlfleet-min-version"
"""On a request: the oldest version that may answer; else 409."""

EPOCH_HEADER = "x-rlfleet-epoch"
"""With GET state: the caller's epoch. It is the heartbeat of a driver and renews the TTL of a
change; a lower epoch than the worker's renews nothing."""
TARGET_HEADER = "x-rlfleet-target"
"""With GET state and an epoch: the fleet's target. A worker rejects a trainer's pause and
weights while there is one."""
OWNER_HEADER = "x-rlfleet-target-owner"
"""With the target: what set it, for the message of that rejection."""
UNASKED_HEADER = "x-rlfleet-unasked"
"""With GET state: the caller's epoch, of a fleet without a target. It is no heartbeat: a
change without a driver still expires."""
OVER_HEADER = "x-rlfleet-over"
"""With GET state: EPOCH.SEQUENCE of the last command that the caller has cancelled. That one
and all before it are rejected if they arrive later."""
FOLLOW_HEADER = "x-rlfleet-follow"
"""With GET state: the fleet follows its trainer, so the worker looks for the newest version."""
TAKEN_UP_HEADER = "x-rlfleet-taken-up"
"""With the former, if the fleet acknowledges versions that its trainer offers: the version that it
has taken up. A worker that sees no newer one accepts the next offer."""
NEEDS_HEADER = "x-rlfleet-needs"
"""With GET state and an epoch: JSON of Needs (worker/retention.py), so that the worker finds the
versions that are not needed, and deletes them if the fleet says so."""
DEFAULT_TTL_S = 120.0
"""How long a change waits for a command or heartbeat of its driver before the sidecar ends it."""
MAX_TTL_S = 3600.0
TRAINER_TTL_S = 1500.0
"""The same for a trainer's change: longer than prime-rl retries one slow engine, 1440 s."""

RELOAD_RPC = "rlfleet_reload"
"""A method of the worker extension, called by vLLM's /collective_rpc on every rank: takes a
directory and its files, returns Installed."""
PRELOAD_RPC = "rlfleet_preload"
"""Takes a directory and its files, begins to read them into memory for the next reload unless it
has, and returns Preloaded."""
PRELOADED_RPC = "rlfleet_preloaded"
"""Returns Preloaded, without a preload one of no bytes."""
READ_BACK_RPC = "rlfleet_read_back"
"""Returns the ReadBack of the memory now; None if it cannot be read."""
RELOADED_RPC = "rlfleet_reloaded"
"""Returns the ReadBack after the last reload, compared with what it loaded, once it is read; None
if memory cannot be read."""
CONSUMED_RPC = "rlfleet_consumed"
"""Returns what was Consumed when the engine booted; None if that is unknown."""
DESCRIBE_RPC = "rlfleet_describe"
"""Takes kinds of tensors, returns the EngineDescription (selftest.py)."""
LEFT_OUT_RPC = "rlfleet_left_out"
"""Takes the number of a loaded adapter, returns the names of its modules that a rank ignores."""

BASE_VERSION = "base"
"""The name of the weights that the engine boots with (spec.model.path)."""

VERSION_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$"
"""One directory name: no separator, no leading dot, at most 128 characters."""

ADAPTER_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._@-]{0,126}[A-Za-z0-9])?$"
"""An adapter's name is a model's name for samplers, and a directory's name in the cache.

ART names the adapter of a step MODEL@STEP.
"""

MODEL_PATTERN = r"^[^#\x00-\x20\x7f]{1,256}$"
"""A model's or an adapter's name, which may contain slashes. It never contains ``#``, which the
engine appends to a name with its number."""

DIGEST_PATTERN = r"^sha256:[0-9a-f]{64}$"

MANIFEST_FILE = "rlfleet-manifest.json"
"""Optional, next to the weights: {"files": {NAME: {"size": BYTES, "sha256" or "blake3": HEX}}}."""
